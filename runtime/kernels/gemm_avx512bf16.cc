// The routines of gemm.h for machines with AVX-512, VNNI and the dot product of bfloat16 (BF16); all but those of pairs are
// AVX-512's.
#if defined(XFORMC_AVX512BF16)
#include "gemm_avx512.h"

namespace xformc {
namespace {

constexpr int PAIR = 4;  // bytes

// uint16 [steps][rows][2], with a zero after an odd depth.
void pack_rows(const float* x, int rows, int64_t depth, void* packed) {
  auto* to = static_cast<char*>(packed);
  for (int r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < depth; k += WIDTH) {
      char pairs[WIDTH / 2 * PAIR];
      Vector::store_pairs(pairs, Vector::load_some(x + r * depth + k, lanes(depth, k)));
      for (int i = 0; i < WIDTH / 2 && k + 2 * i < depth; ++i) {
        std::memcpy(to + ((k / 2 + i) * rows + r) * PAIR, pairs + i * PAIR, PAIR);
      }
    }
  }
}

INLINE Float dot_pairs(Float sum, Int weights, Int x) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(x));
  return sum;
}

template <int rows>
void multiply_rows_of(const Tile& tile) {
  Float sums[rows][2];
  for (int r = 0; r < rows; ++r) sums[r][0] = sums[r][1] = Vector::zero();
  fetch_residual(tile, 0, rows);
  const auto* x = static_cast<const int8_t*>(tile.x);
  const auto* weights = static_cast<const uint8_t*>(tile.panel);
  const char* ahead = tile.ahead;
  for (int64_t k = 0; k < tile.steps; ++k) {
    const Int left = Vector::load4(weights), right = Vector::load4(weights + 4 * WIDTH);
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      const Int value = Vector::all_fours(x + PAIR * r);
      sums[r][0] = dot_pairs(sums[r][0], left, value);
      sums[r][1] = dot_pairs(sums[r][1], right, value);
    }
    x += PAIR * rows;
    weights += 4 * PANEL;
    fetch<rows>(ahead);
    ahead += tile.ahead_step;
  }
  finish_floats<rows>(tile, 0, sums);
}

SEPARATE void multiply_rows(const Tile& tile) {
  with_count(tile.rows, [&](auto count) { multiply_rows_of<decltype(count)::value>(tile); });
}

}  // namespace

const DenseRoutines AVX512BF16 = {Vector::rows, 1, 1, PAIR, nullptr, pack_rows, nullptr, each<multiply_rows>};

}  // namespace xformc
#endif
