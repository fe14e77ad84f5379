// The operator Embed: rows of a table, which is stored as the weight of a projection, or row by row in float32.
#include <algorithm>

#include "gemm.h"
#include "kernel.h"
#include "panel.h"

namespace xformc {
namespace {

struct Embed : Kernel {
  explicit Embed(const Attributes& info) : routines_(routines()) {
    precision_ = precision_of(info.text("precision"));
    width_ = info.integer("width");
    factor_ = info.number("factor");
    require(width_ >= 1, "Embed: the width is less than 1");
  }

  void run(const Context& context) override {
    const Value input = context.input(0), weight = context.input(1);
    Shape shape = input.shape;
    const int64_t count = product(shape, 0, shape.size());
    const int64_t* ids = input.as<int64_t>();
    const bool plain = precision_ == Precision::float32 && weight.shape.size() == 2;
    int64_t vocabulary = times(weight.shape.at(0), plain ? 1 : PANEL);
    const float* scale = nullptr;
    ScreenedRows screened;
    if (precision_ == Precision::screened) {
      require(context.input_count() == 4, "Embed: screened weights have a scale and a rest");
      screened = ScreenedRows(weight, context.input(2), context.input(3), width_);
      vocabulary = context.input(2).count();
    } else if (has_scale(precision_)) {
      require(context.input_count() == 3, "Embed: integers need a scale");
      const Value& scales = context.input(2);
      require(scales, "Embed: integers need a scale");
      const int64_t given = scales.count();
      const int64_t panels = vocabulary / PANEL;
      if (precision_ == Precision::int8) vocabulary = given;
      const bool fits = ceil_div(vocabulary, PANEL) == panels && given == scale_count(precision_, vocabulary, width_);
      require(fits, "Embed: scale does not have one number for each row");
      scale = scales.as<float>();
    }
    const char* table = plain ? plain_table(weight) : bind_weight(weight, precision_, vocabulary, width_);
    for (int64_t i = 0; i < count; ++i) {
      if (ids[i] < 0 || ids[i] >= vocabulary) fail("Embed: the table has no row " + std::to_string(ids[i]));
    }
    shape.push_back(width_);
    float* y = context.output<float>(0, shape);
    const int64_t together = std::max<int64_t>(1, 4 * 1024 / width_);
    parallel(context, ceil_div(count, together), [&](size_t chunk) {
      const int64_t first = chunk * together;
      for (int64_t i = first; i < std::min(count, first + together); ++i) {
        if (plain) {
          const float* row = reinterpret_cast<const float*>(table) + ids[i] * width_;
          std::transform(row, row + width_, y + i * width_, [this](float value) { return factor_ * value; });
        } else if (precision_ == Precision::screened) {
          screened.copy(ids[i], factor_, y + i * width_);
        } else {
          copy_row(table, scale, ids[i], y + i * width_);
        }
      }
    });
  }

 private:
  // The data of a table that is not in panels.
  const char* plain_table(const Value& table) const {
    require(table.type == FLOAT, "Embed: the table is not float32");
    require(table.shape[1] == width_, "Embed: the table's rows are not of this width");
    return table.as<char>();
  }

  void copy_row(const char* table, const float* scale, int64_t id, float* y) const {
    const char* panel = table + id / PANEL * panel_bytes(precision_, width_);
    const int64_t column = id % PANEL;
    if (precision_ == Precision::int8) {
      const auto* stored = reinterpret_cast<const uint8_t*>(panel) + 4 * column;
      for (int64_t k = 0; k < width_; ++k) {
        const int value = stored[k / 4 * 4 * PANEL + k % 4] - 128;
        y[k] = factor_ * (value * scale[id]);
      }
    } else if (precision_ == Precision::int4) {
      copy_nibbles(reinterpret_cast<const uint8_t*>(panel) + 4 * column, scale, id, y);
    } else if (precision_ == Precision::float32) {
      const auto* stored = reinterpret_cast<const float*>(panel) + column;
      for (int64_t k = 0; k < width_; ++k) y[k] = factor_ * stored[k * PANEL];
    } else if (precision_ == Precision::bfloat16) {
      const auto* stored = reinterpret_cast<const uint16_t*>(panel) + 2 * column;
      copy_narrow([stored](int64_t k) { return stored[k / 2 * 2 * PANEL + k % 2]; }, y);
    } else {
      const auto* stored = reinterpret_cast<const uint16_t*>(panel) + column;
      copy_narrow([stored](int64_t k) { return stored[k * PANEL]; }, y);
    }
  }

  void copy_nibbles(const uint8_t* stored, const float* scale, int64_t id, float* y) const {
    const float* scales = scale + id / PANEL * ceil_div(width_, GROUP) * PANEL + id % PANEL;
    for (int64_t k = 0; k < width_; ++k) {
      const int both = stored[k / 8 * 4 * PANEL + k % 4];
      const int value = (k % 8 < 4 ? both & 15 : both >> 4) - 8;
      y[k] = factor_ * (value * scales[k / GROUP * PANEL]);
    }
  }

  template <typename Stored>
  void copy_narrow(const Stored& stored, float* y) const {
    const auto widen = precision_ == Precision::float16 ? routines_.widen_float16 : routines_.widen_bfloat16;
    uint16_t narrow[PANEL] = {};
    float wide[PANEL];
    for (int64_t k = 0; k < width_; k += PANEL) {
      const int64_t count = std::min<int64_t>(PANEL, width_ - k);
      for (int64_t i = 0; i < count; ++i) narrow[i] = stored(k + i);
      widen(narrow, PANEL, wide);
      for (int64_t i = 0; i < count; ++i) y[k + i] = factor_ * wide[i];
    }
  }

  const Routines& routines_;
  Precision precision_;
  int64_t width_;
  float factor_;
};

}  // namespace

void add_embed(Operators& all) {
  static const Operator embed("Embed", make_kernel<Embed>, {INT64, ANY, FLOAT, INT16}, {FLOAT}, 2);
  all.push_back(&embed);
}

}  // namespace xformc
