// The routines of gemm.h for machines with AMX, whose products of bytes are tiles of 16 rows and 16 columns; the rest is
// that of AVX-512.
#if defined(XFORMC_AMX)
#include "gemm_avx512.h"
#include "tiles.h"

namespace xformc {
namespace {

constexpr int SIDE = 16;         // rows and columns of a product of registers, and its steps of four bytes
constexpr int ROWS = 2 * SIDE;   // of a tile of gemm.h, whose sums fill half of the registers
constexpr int CHUNK = SIDE * 4;  // bytes of a row that are multiplied at once
constexpr int LINE = PANEL * 4;  // bytes of a step of a panel
constexpr int LEAST_ROWS = 5;    // fewer are left to AVX-512

// Registers: the sums of the first and the last 16 rows for each half of the panel; rows, and weights.
enum { TOP_LEFT, TOP_RIGHT, BOTTOM_LEFT, BOTTOM_RIGHT, TOP, BOTTOM, LEFT, RIGHT };

// A row's chunks lie apart: packed int8 [chunks][rows][64], with zeros after the depth.
void pack_rows(const float* x, int rows, int64_t depth, int8_t* packed, float* row_scale, int32_t* row_offset) {
  if (rows < LEAST_ROWS) return AVX512.pack_int8(x, rows, depth, packed, row_scale, row_offset);
  for (int r = 0; r < rows; ++r) {
    const float* row = x + r * depth;
    const Float divisor = byte_divisor(row, depth, row_scale[r]);
    Int sum = Vector::all(int32_t{0});
    for (int64_t begin = 0; begin < depth; begin += CHUNK) {
      int8_t* chunk = packed + (begin / CHUNK * rows + r) * CHUNK;
      sum = Vector::add_int(sum, pack_range<4>(row, depth, begin, begin + CHUNK, divisor, chunk - begin, 1));
    }
    row_offset[r] = offset_of(sum);
  }
}

// The sums of a chunk more: of the first rows, and, if there are `both`, of the last ones.
template <bool both>
INLINE void add_chunk(const int8_t* x, int top, const uint8_t* weights) {
  load_tile<LEFT>(weights, LINE);
  load_tile<RIGHT>(weights + CHUNK, LINE);
  load_tile<TOP>(x, CHUNK);
  multiply_tiles<TOP_LEFT, TOP, LEFT>();
  multiply_tiles<TOP_RIGHT, TOP, RIGHT>();
  if (both) {
    load_tile<BOTTOM>(x + top * CHUNK, CHUNK);
    multiply_tiles<BOTTOM_LEFT, BOTTOM, LEFT>();
    multiply_tiles<BOTTOM_RIGHT, BOTTOM, RIGHT>();
  }
}

template <bool both>
void sum_chunks(const Tile& tile, int rows, int32_t* sums) {
  const int top = both ? SIDE : rows;
  configure_tiles(top, rows - top);
  clear_tile<TOP_LEFT>();
  clear_tile<TOP_RIGHT>();
  if (both) {
    clear_tile<BOTTOM_LEFT>();
    clear_tile<BOTTOM_RIGHT>();
  }
  const auto* x = static_cast<const int8_t*>(tile.x);
  const auto* weights = static_cast<const uint8_t*>(tile.panel);
  const char* ahead = tile.ahead;
  int64_t step = 0;
  for (; step + SIDE <= tile.steps; step += SIDE) {
    for (int i = 0; i < SIDE; ++i) fetch<ROWS>(ahead + i * tile.ahead_step);
    ahead += SIDE * tile.ahead_step;
    add_chunk<both>(x, top, weights);
    x += rows * CHUNK;
    weights += SIDE * LINE;
  }
  if (step < tile.steps) {
    alignas(64) uint8_t rest[SIDE * LINE] = {};
    std::memcpy(rest, weights, static_cast<size_t>((tile.steps - step) * LINE));
    add_chunk<both>(x, top, rest);
  }
  store_tile<TOP_LEFT>(sums, LINE);
  store_tile<TOP_RIGHT>(sums + SIDE, LINE);
  if (both) {
    store_tile<BOTTOM_LEFT>(sums + SIDE * PANEL, LINE);
    store_tile<BOTTOM_RIGHT>(sums + SIDE * PANEL + SIDE, LINE);
  }
  release_tiles();
}

void multiply_rows(const Tile& tile, int rows) {
  if (rows < LEAST_ROWS) return AVX512.int8_tile(tile, rows);
  alignas(64) int32_t sums[ROWS * PANEL];
  (rows > SIDE ? sum_chunks<true> : sum_chunks<false>)(tile, rows, sums);
  finish(tile, 0, [&](const auto& end) __attribute__((always_inline)) {
    const Float scale[2] = {end.some(tile.scale, 0), end.some(tile.scale, 1)};
    for (int r = 0; r < rows; ++r) {
      const Float scale_of_row = Vector::all(tile.row_scale[r]);
      const Int offset = Vector::all(tile.row_offset[r]);
      for (int h = 0; h < 2; ++h) {
        const Int sum = Vector::add_int(_mm512_load_si512(sums + r * PANEL + h * SIDE), offset);
        end.row(r, h, Vector::mul(Vector::to_float(sum), Vector::mul(scale_of_row, scale[h])));
      }
    }
  });
}

Routines with_tiles() {
  Routines routines = AVX512;
  routines.instructions = "AVX-512, VNNI, AMX";
  routines.int8_rows = ROWS;
  routines.chunk = SIDE;
  routines.pack_int8 = pack_rows;
  routines.int8_tile = multiply_rows;
  return routines;
}

}  // namespace

const Routines AMX = with_tiles();

bool may_use_tiles() {
  static const bool may = permit_tiles();
  return may;
}

}  // namespace xformc
#endif
