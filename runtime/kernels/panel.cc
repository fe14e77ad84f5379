#include "panel.h"

#include <algorithm>
#include <cstring>

namespace xformc {
namespace {

Element element_of(Precision precision) {
  switch (precision) {
    case Precision::float32: return FLOAT;
    case Precision::int8:
    case Precision::int4: return ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
    case Precision::int16:
    case Precision::screened: return INT16;
    default: return ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16;
  }
}

Shape shape_of(Precision precision, int64_t outputs, int64_t steps) {
  const int64_t panels = ceil_div(outputs, PANEL);
  switch (precision) {
    case Precision::int8: return {panels, steps, PANEL, 4};
    case Precision::int4: return {panels, steps, GROUP / 8, PANEL, 4};
    case Precision::bfloat16:
    case Precision::int16:
    case Precision::screened: return {panels, steps, PANEL, 2};
    default: return {panels, steps, PANEL};
  }
}

// The unit of what a row's integers leave over: 2^-15 of its scale, without the scale's fraction.
float unit_of(float scale) {
  uint32_t bits;
  std::memcpy(&bits, &scale, sizeof bits);
  bits &= 0xff800000;
  std::memcpy(&scale, &bits, sizeof bits);
  return scale * 0x1p-15f;
}

}  // namespace

Precision precision_of(const std::string& name) {
  if (name == "float32") return Precision::float32;
  if (name == "float16") return Precision::float16;
  if (name == "bfloat16") return Precision::bfloat16;
  if (name == "int8") return Precision::int8;
  if (name == "int4") return Precision::int4;
  if (name == "screened") return Precision::screened;
  fail("the precision '" + name + "' is none of float32, float16, bfloat16, int8, int4, screened");
}

bool has_scale(Precision precision) {
  return precision == Precision::int8 || precision == Precision::int4 || precision == Precision::screened;
}

int64_t scale_count(Precision precision, int64_t outputs, int64_t depth) {
  return precision == Precision::int4 ? times(times(ceil_div(outputs, PANEL), PANEL), ceil_div(depth, GROUP)) : outputs;
}

int64_t steps_of(Precision precision, int64_t depth) {
  switch (precision) {
    case Precision::int8: return ceil_div(depth, 4);
    case Precision::int4: return ceil_div(depth, GROUP);
    case Precision::bfloat16:
    case Precision::int16:
    case Precision::screened: return ceil_div(depth, 2);
    default: return depth;
  }
}

int64_t panel_bytes(Precision precision, int64_t depth) {
  const int64_t places = steps_of(precision, depth) * PANEL;
  switch (precision) {
    case Precision::int4: return places * GROUP / 2;
    case Precision::float16: return places * 2;
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

ScreenedRows::ScreenedRows(const Value& panels_, const Value& scale_, const Value& rest_, int64_t depth_)
    : depth(depth_) {
  require(scale_ && rest_, "screened weights have a scale and a rest");
  require(scale_.type == FLOAT && rest_.type == INT16, "the scale or the rest of screened weights has another type");
  rows = scale_.count();
  require(scale_.shape == Shape{rows} && rest_.shape == Shape({rows, depth}),
          "the rest of screened weights does not fit their scale and the depth of x");
  panels = reinterpret_cast<const int16_t*>(bind_weight(panels_, Precision::screened, rows, depth));
  scale = scale_.as<float>();
  rest = rest_.as<int16_t>();
}

void ScreenedRows::copy(int64_t row, float factor, float* y) const {
  const int16_t* words = panels + row / PANEL * ceil_div(depth, 2) * PANEL * 2 + row % PANEL * 2;
  const int16_t* left = rest + row * depth;
  const float step = scale[row], unit = unit_of(step);
  for (int64_t k = 0; k < depth; ++k) {
    const int16_t word = words[k / 2 * 2 * PANEL + k % 2];
    y[k] = factor * (static_cast<float>(word) * step + static_cast<float>(left[k]) * unit);
  }
}

void ScreenedRows::copy_panel(int64_t panel, const Routines& routines, float* y) const {
  const int64_t first = panel * PANEL, count = std::min<int64_t>(PANEL, rows - first);
  float steps[PANEL] = {}, units[PANEL] = {};
  for (int64_t row = 0; row < count; ++row) {
    steps[row] = scale[first + row];
    units[row] = unit_of(steps[row]);
  }
  const int16_t* words = panels + panel * ceil_div(depth, 2) * PANEL * 2;
  routines.widen_screened(words, rest + first * depth, count, depth, steps, units, y);
}

}  // namespace xformc
