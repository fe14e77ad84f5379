#include "product.h"

#include <algorithm>

namespace xformc {
namespace {

constexpr int64_t FEW_VALUES = 16 * 1024;  // so few are packed by the calling thread alone
constexpr int64_t FETCHING_BLOCKS = 2;     // the next panel is fetched during the last so many blocks of rows
constexpr int64_t NARROW_BLOCKS = 2;       // for more blocks of rows 16-bit and 4-bit weights are widened once

bool dense(Precision precision) { return precision == Precision::int8 || precision == Precision::bfloat16_pairs; }

}  // namespace

PackedRows::PackedRows(const Routines& routines, Precision precision, int64_t rows, int64_t depth)
    : routines_(routines), precision_(precision), rows_(rows), depth_(depth),
      blocks_(ceil_div(rows, dense(precision) ? routines.dense_rows : routines.rows)),
      panel_bytes_(xformc::panel_bytes(precision, depth)) {
  static thread_local Buffer values, scales, offsets;
  groups_ = precision == Precision::int4 ? ceil_div(depth, GROUP) : 1;
  steps_ = precision == Precision::int4 ? groups_ * GROUP / 4 : steps_of(precision, depth);
  row_bytes_ = steps_ * 4;
  if (dense(precision)) {
    const int64_t whole = ceil_div(steps_, routines.chunk) * routines.chunk;
    row_bytes_ = whole * (precision == Precision::int8 ? routines.four_size : routines.pair_size);
  }
  values_ = values.at_least<char>(bytes());
  scales_ = scales.at_least<float>(rows);
  offsets_ = offsets.at_least<int32_t>(rows * groups_);
}

PackedRows::PackedRows(const Routines& routines, Precision precision, const float* x, int64_t rows, int64_t depth)
    : PackedRows(routines, precision, rows, depth) {
  for (int64_t block = 0; block < blocks_; ++block) pack(x, block);
}

PackedRows::PackedRows(Ort::KernelContext& context, const Routines& routines, Precision precision, const float* x,
                       int64_t rows, int64_t depth)
    : PackedRows(routines, precision, rows, depth) {
  if (rows * depth <= FEW_VALUES) {
    for (int64_t block = 0; block < blocks_; ++block) pack(x, block);
  } else {
    parallel(context, blocks_, [this, x](size_t block) { pack(x, block); });
  }
}

void PackedRows::pack(const float* x, int64_t block) const {
  const int64_t begin = first(block);
  const int count = static_cast<int>(first(block + 1) - begin);
  char* to = values_ + begin * row_bytes_;
  if (precision_ == Precision::int8) {
    routines_.pack_int8(x + begin * depth_, count, depth_, reinterpret_cast<int8_t*>(to), scales_ + begin,
                        offsets_ + begin);
  } else if (precision_ == Precision::int4) {
    routines_.pack_int4(x + begin * depth_, count, depth_, reinterpret_cast<int8_t*>(to), scales_ + begin,
                        offsets_ + begin * groups_);
  } else if (precision_ == Precision::int16) {
    routines_.pack_int16(x + begin * depth_, count, depth_, reinterpret_cast<int16_t*>(to), scales_ + begin);
    std::fill_n(offsets_ + begin, count, 0);
  } else if (precision_ == Precision::bfloat16_pairs) {
    routines_.pack_pairs(x + begin * depth_, count, depth_, to);
  } else {
    routines_.pack_float(x + begin * depth_, count, depth_, reinterpret_cast<float*>(to));
  }
}

void PackedRows::multiply(const Weight& weight, int64_t panel, int64_t from, int64_t to, bool more,
                          const Result& result) const {
  const char* stored = weight.panels + panel * panel_bytes_;
  Tile tile{};
  const bool wide = to - from > NARROW_BLOCKS && narrow();
  tile.panel = wide ? widened(stored) : stored;
  tile.steps = steps_;
  tile.columns = static_cast<int>(std::min<int64_t>(PANEL, weight.outputs - panel * PANEL));
  if (weight.bias != nullptr) tile.bias = weight.bias + panel * PANEL;
  if (weight.scale != nullptr) tile.scale = weight.scale + panel * PANEL * groups_;
  tile.y = result.y;
  tile.stride = result.stride;
  tile.residual = result.residual;
  const int64_t fetching = std::min(to - from, FETCHING_BLOCKS), step = panel_bytes_ / steps_ / fetching;
  const TileRoutine routine = tile_routine(wide);
  int64_t begin = first(from);
  for (int64_t block = from; block < to; ++block) {
    const int64_t end = first(block + 1), fetched = block - (to - fetching);
    const bool fetch = more && fetched >= 0;
    tile.ahead = fetch ? stored + panel_bytes_ + fetched * step * steps_ : stored;
    tile.ahead_step = fetch ? step : 0;
    multiply_rows(begin, static_cast<int>(end - begin), tile, routine, result.activation);
    tile.y += (end - begin) * result.stride;
    if (tile.residual != nullptr) tile.residual += (end - begin) * result.stride;
    begin = end;
  }
}

PackedRows::TileRoutine PackedRows::tile_routine(bool wide) const {
  switch (precision_) {
    case Precision::float32: return routines_.float_tile;
    case Precision::float16: return wide ? routines_.float_tile : routines_.float16_tile;
    case Precision::bfloat16: return wide ? routines_.float_tile : routines_.bfloat16_tile;
    case Precision::bfloat16_pairs: return routines_.pair_tile;
    case Precision::int8: return routines_.int8_tile;
    case Precision::int4: return wide ? routines_.wide_int4_tile : routines_.int4_tile;
    default: return routines_.int16_tile;
  }
}

// 16-bit weights of a panel as float32, or 4-bit ones as bytes, in memory of the working thread.
const void* PackedRows::widened(const char* stored) const {
  static thread_local Buffer wide;
  if (precision_ == Precision::int4) {
    auto* to = wide.at_least<uint8_t>(2 * panel_bytes_);
    routines_.widen_int4(reinterpret_cast<const uint8_t*>(stored), panel_bytes_, to);
    return to;
  }
  auto* to = wide.at_least<float>(depth_ * PANEL);
  const auto* from = reinterpret_cast<const uint16_t*>(stored);
  const bool half = precision_ == Precision::float16;
  (half ? routines_.widen_float16 : routines_.widen_bfloat16)(from, depth_ * PANEL, to);
  return to;
}

// The packed rows begin .. begin + count - 1; the tile lacks only what belongs to them.
void PackedRows::multiply_rows(int64_t begin, int count, Tile& tile, TileRoutine routine, Activation activation) const {
  tile.x = values_ + begin * row_bytes_;
  tile.row_scale = scales_ + begin;
  tile.row_offset = offsets_ + begin * groups_;
  tile.relu = activation == Activation::relu;
  if (tile.relu || activation == Activation::none) {
    routine(tile, count);
  } else {
    activate_block(tile, count, routine, activation);
  }
}

// As multiply_rows for activations that the tile does not know, by way of memory beside.
void PackedRows::activate_block(Tile tile, int count, TileRoutine routine, Activation activation) const {
  alignas(64) float values[MOST_ROWS * PANEL] = {};
  float* y = tile.y;
  const float* added = tile.residual;
  const int64_t stride = tile.stride;
  tile.y = values;
  tile.stride = PANEL;
  tile.residual = nullptr;
  routine(tile, count);
  routines_.activate(activation, values, count * PANEL);
  for (int r = 0; r < count; ++r) {
    for (int c = 0; c < tile.columns; ++c) {
      y[r * stride + c] = values[r * PANEL + c] + (added == nullptr ? 0.0f : added[r * stride + c]);
    }
  }
}

}  // namespace xformc
