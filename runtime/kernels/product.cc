#include "product.h"

#include <algorithm>

namespace xformc {
namespace {

constexpr int64_t FEW_VALUES = 16 * 1024;    // so few are packed by the calling thread alone
constexpr int64_t FETCHING_BLOCKS = 2;       // the next panel is fetched during the last so many blocks of rows
constexpr int64_t NARROW_BLOCKS = 2;         // for more blocks of rows 16-bit and 4-bit weights are widened once
constexpr int64_t CACHED_VALUES = 8 * 1024;  // of tiles before their activation, for the first-level cache

static_assert(CACHED_VALUES >= MOST_ROWS * PANEL, "a tile is activated at once");

// Whether tiles are given the activation; the others are computed afterwards.
bool of_tiles(Activation activation) { return activation == Activation::none || activation == Activation::relu; }

bool dense(Precision precision) { return precision == Precision::int8 || precision == Precision::bfloat16; }

}  // namespace

PackedRows::PackedRows(const Routines& routines, Precision precision, int64_t rows, int64_t depth)
    : routines_(routines), precision_(precision), rows_(rows), depth_(depth),
      blocks_(ceil_div(rows, dense(precision) ? routines.dense_rows : routines.rows)),
      panel_bytes_(xformc::panel_bytes(precision, depth)) {
  static thread_local Buffer values, scales, offsets;
  groups_ = precision == Precision::int4 ? ceil_div(depth, GROUP) : 1;
  steps_ = precision == Precision::int4       ? groups_ * GROUP / 4
           : precision == Precision::screened ? depth
                                              : steps_of(precision, depth);
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

PackedRows::PackedRows(const Context& context, const Routines& routines, Precision precision, const float* x,
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
  } else if (precision_ == Precision::bfloat16) {
    routines_.pack_pairs(x + begin * depth_, count, depth_, to);
  } else {
    routines_.pack_float(x + begin * depth_, count, depth_, reinterpret_cast<float*>(to));
  }
}

void PackedRows::multiply(const Weight& weight, Range panels, Range blocks, bool more, const Result& result) const {
  const int64_t count = blocks.last - blocks.first, begin = first(blocks.first);
  const bool screened = precision_ == Precision::screened, wide = screened || (count > NARROW_BLOCKS && narrow());
  const int64_t fetching = std::min(count, FETCHING_BLOCKS), step = panel_bytes_ / steps_ / fetching;
  const TileRoutine routine = tile_routine(wide);
  const int most = tiles_at_once(result.activation);
  Tile tiles[MOST_TILES];
  int waiting = 0;
  for (int64_t panel = panels.first; panel < panels.last; ++panel) {
    const char* stored = weight.panels + panel * panel_bytes_;
    const void* weights = wide ? widened(weight, panel) : stored;
    const bool followed = more || panel + 1 < panels.last;
    for (int64_t block = blocks.first; block < blocks.last; ++block) {
      const int64_t row = first(block), fetched = block - (blocks.last - fetching);
      const int64_t at = (row - begin) * result.stride + (panel - panels.first) * PANEL;
      const bool fetch = followed && fetched >= 0;
      Tile& tile = tiles[waiting++];
      tile.rows = static_cast<int>(first(block + 1) - row);
      tile.x = values_ + row * row_bytes_;
      tile.panel = weights;
      tile.steps = steps_;
      tile.y = result.y + at;
      tile.stride = result.stride;
      tile.columns = static_cast<int>(std::min<int64_t>(PANEL, weight.outputs - panel * PANEL));
      tile.bias = weight.bias == nullptr ? nullptr : weight.bias + panel * PANEL;
      tile.residual = result.residual == nullptr ? nullptr : result.residual + at;
      tile.relu = result.activation == Activation::relu;
      tile.scale = weight.scale == nullptr || screened ? nullptr : weight.scale + panel * PANEL * groups_;
      tile.row_scale = scales_ + row;
      tile.row_offset = offsets_ + row * groups_;
      tile.ahead = fetch ? stored + panel_bytes_ + fetched * step * steps_ : stored;
      tile.ahead_step = fetch ? step : 0;
      if (waiting == most) {
        multiply_tiles(tiles, waiting, routine, result.activation);
        waiting = 0;
      }
    }
  }
  if (waiting > 0) multiply_tiles(tiles, waiting, routine, result.activation);
}

// Those of widened weights are multiplied one by one: the next panel is widened to the same memory.
int PackedRows::tiles_at_once(Activation activation) const {
  const int most = dense(precision_) ? routines_.dense_tiles : 1;
  if (of_tiles(activation)) return most;
  const int64_t cached = CACHED_VALUES / (PANEL * ceil_div(rows_, blocks_));
  return static_cast<int>(std::clamp<int64_t>(cached, 1, most));
}

TileRoutine PackedRows::tile_routine(bool wide) const {
  switch (precision_) {
    case Precision::float32:
    case Precision::screened: return routines_.float_tiles;
    case Precision::float16: return wide ? routines_.float_tiles : routines_.float16_tiles;
    case Precision::bfloat16: return routines_.pair_tiles;
    case Precision::int8: return routines_.int8_tiles;
    case Precision::int4: return wide ? routines_.wide_int4_tiles : routines_.int4_tiles;
    default: return routines_.int16_tiles;
  }
}

// Halves or screened weights of a panel as float32, or 4-bit ones as bytes, in memory of the working thread.
const void* PackedRows::widened(const Weight& weight, int64_t panel) const {
  static thread_local Buffer wide;
  const char* stored = weight.panels + panel * panel_bytes_;
  if (precision_ == Precision::int4) {
    auto* to = wide.at_least<uint8_t>(2 * panel_bytes_);
    routines_.widen_int4(reinterpret_cast<const uint8_t*>(stored), panel_bytes_, to);
    return to;
  }
  auto* to = wide.at_least<float>((depth_ + 1) * PANEL);
  if (precision_ == Precision::screened) {
    weight.screened.copy_panel(panel, routines_, to);
    return to;
  }
  routines_.widen_float16(reinterpret_cast<const uint16_t*>(stored), depth_ * PANEL, to);
  return to;
}

// Activations that tiles do not know go by way of memory beside.
void PackedRows::multiply_tiles(const Tile* tiles, int count, TileRoutine routine, Activation activation) const {
  if (of_tiles(activation)) return routine(tiles, count);
  static thread_local Buffer buffer;
  auto* const values = buffer.at_least<float>(CACHED_VALUES);
  Tile beside[MOST_TILES];
  float* next = values;
  for (int i = 0; i < count; ++i) {
    beside[i] = tiles[i];
    beside[i].y = next;
    beside[i].stride = PANEL;
    beside[i].residual = nullptr;
    next += tiles[i].rows * PANEL;
    if (tiles[i].columns < PANEL) std::fill(beside[i].y, next, 0.0f);
  }
  routine(beside, count);
  routines_.activate(activation, values, next - values);
  for (int i = 0; i < count; ++i) {
    const Tile& tile = tiles[i];
    for (int r = 0; r < tile.rows; ++r) {
      const float* from = beside[i].y + r * PANEL;
      float* y = tile.y + r * tile.stride;
      const float* added = tile.residual == nullptr ? nullptr : tile.residual + r * tile.stride;
      for (int c = 0; c < tile.columns; ++c) y[c] = from[c] + (added == nullptr ? 0.0f : added[c]);
    }
  }
}

}  // namespace xformc
