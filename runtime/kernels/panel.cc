#include "panel.h"

namespace xformc {
namespace {

Element element_of(Precision precision) {
  switch (precision) {
    case Precision::float32: return FLOAT;
    case Precision::int8:
    case Precision::int4: return ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
    case Precision::int16: return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16;
    default: return ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16;
  }
}

Shape shape_of(Precision precision, int64_t outputs, int64_t steps) {
  const int64_t panels = ceil_div(outputs, PANEL);
  switch (precision) {
    case Precision::int8: return {panels, steps, PANEL, 4};
    case Precision::int4: return {panels, steps, GROUP / 8, PANEL, 4};
    case Precision::bfloat16_pairs:
    case Precision::int16: return {panels, steps, PANEL, 2};
    default: return {panels, steps, PANEL};
  }
}

}  // namespace

Precision precision_of(const std::string& name) {
  if (name == "float32") return Precision::float32;
  if (name == "float16") return Precision::float16;
  if (name == "bfloat16") return Precision::bfloat16;
  if (name == "bfloat16_pairs") return Precision::bfloat16_pairs;
  if (name == "int8") return Precision::int8;
  if (name == "int4") return Precision::int4;
  fail("the precision '" + name + "' is none of float32, float16, bfloat16, bfloat16_pairs, int8, int4");
}

bool has_scale(Precision precision) { return precision == Precision::int8 || precision == Precision::int4; }

int64_t scale_count(Precision precision, int64_t outputs, int64_t depth) {
  return precision == Precision::int4 ? times(times(ceil_div(outputs, PANEL), PANEL), ceil_div(depth, GROUP)) : outputs;
}

int64_t steps_of(Precision precision, int64_t depth) {
  switch (precision) {
    case Precision::int8: return ceil_div(depth, 4);
    case Precision::int4: return ceil_div(depth, GROUP);
    case Precision::bfloat16_pairs:
    case Precision::int16: return ceil_div(depth, 2);
    default: return depth;
  }
}

int64_t panel_bytes(Precision precision, int64_t depth) {
  const int64_t places = steps_of(precision, depth) * PANEL;
  switch (precision) {
    case Precision::int4: return places * GROUP / 2;
    case Precision::float16:
    case Precision::bfloat16: return places * 2;
    default: return places * 4;
  }
}

const char* bind_weight(const Value& weight, Precision precision, int64_t outputs, int64_t depth) {
  require(weight, "a weight is missing");
  require(weight.type == element_of(precision), "the weight's element type does not fit its precision");
  require(weight.shape == shape_of(precision, outputs, steps_of(precision, depth)),
          "the weight's panels do not fit the depth of x and the outputs");
  return weight.as<char>();
}

}  // namespace xformc
