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

const char* bind_weight(const Ort::ConstValue& weight, Precision precision, int64_t outputs, int64_t depth) {
  require(static_cast<const OrtValue*>(weight) != nullptr, "a weight is missing");
  const auto info = weight.GetTensorTypeAndShapeInfo();
  require(info.GetElementType() == element_of(precision), "the weight's element type does not fit its precision");
  require(info.GetShape() == shape_of(precision, outputs, steps_of(precision, depth)),
          "the weight's panels do not fit the depth of x and the outputs");
  return static_cast<const char*>(weight.GetTensorRawData());
}

ConstantWeight::ConstantWeight(const Ort::ConstKernelInfo& info, size_t index, Precision precision, int64_t outputs)
    : precision_(precision) {
  const Ort::ConstValue weight = info.GetConstantInput(index);
  if (static_cast<const OrtValue*>(weight) == nullptr) return;
  const auto found = weight.GetTensorTypeAndShapeInfo();
  const Shape shape = found.GetShape();
  if (found.GetElementType() != element_of(precision) || shape.size() < 2) return;
  if (shape != shape_of(precision, outputs, shape[1])) return;
  steps_ = shape[1];
  data_ = static_cast<const char*>(weight.GetTensorRawData());
}

const char* ConstantWeight::data(int64_t depth) const {
  return steps_of(precision_, depth) == steps_ ? data_ : nullptr;
}

ConstantFloats::ConstantFloats(const Ort::ConstKernelInfo& info, size_t index) {
  const Ort::ConstValue value = info.GetConstantInput(index);
  if (static_cast<const OrtValue*>(value) == nullptr) return;
  const auto found = value.GetTensorTypeAndShapeInfo();
  if (found.GetElementType() != FLOAT) return;
  count_ = static_cast<int64_t>(found.GetElementCount());
  data_ = value.GetTensorData<float>();
}

}  // namespace xformc
