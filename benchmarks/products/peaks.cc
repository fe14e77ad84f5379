#include "peaks.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#include <vector>

#include "gemm.h"
#include "tiles.h"

namespace {

constexpr int SUMS = 16;  // enough for the longest latency

// SUMS independent sums in registers, to each of which `instruction` adds products.
#define VECTOR_PEAK(name, instruction, products)                                        \
  int64_t name(int64_t rounds) {                                                        \
    const __m512i x = _mm512_setzero_si512(), weights = x;                              \
    __m512i sums[SUMS];                                                                 \
    _Pragma("GCC unroll 16") for (int j = 0; j < SUMS; ++j) sums[j] = x;                \
    for (int64_t i = 0; i < rounds; ++i) {                                              \
      _Pragma("GCC unroll 16") for (int j = 0; j < SUMS; ++j) {                         \
        asm volatile(instruction " %2, %1, %0" : "+v"(sums[j]) : "v"(x), "v"(weights)); \
      }                                                                                 \
    }                                                                                   \
    return int64_t{2} * SUMS * (products);                                              \
  }

VECTOR_PEAK(float32, "vfmadd231ps", 16)
VECTOR_PEAK(bfloat16, "vdpbf16ps", 32)
VECTOR_PEAK(int16, "vpdpwssd", 32)
VECTOR_PEAK(int8, "vpdpbusd", 64)

// Four sums of two registers of rows and two of weights, as a tile of 32 rows and 32 outputs has.
template <typename Multiply>
int64_t tiles(int64_t rounds, int64_t products, const Multiply& multiply) {
  xformc::configure_tiles(16, 16);
  xformc::clear_tile<0>();
  xformc::clear_tile<1>();
  xformc::clear_tile<2>();
  xformc::clear_tile<3>();
  xformc::clear_tile<4>();
  xformc::clear_tile<5>();
  xformc::clear_tile<6>();
  xformc::clear_tile<7>();
  for (int64_t i = 0; i < rounds; ++i) multiply();
  xformc::release_tiles();
  return 2 * 4 * products;
}

int64_t tiles_of_bytes(int64_t rounds) {
  return tiles(rounds, 16 * 16 * 64, [] {
    xformc::multiply_bytes<0, 4, 6>();
    xformc::multiply_bytes<1, 4, 7>();
    xformc::multiply_bytes<2, 5, 6>();
    xformc::multiply_bytes<3, 5, 7>();
  });
}

int64_t tiles_of_pairs(int64_t rounds) {
  return tiles(rounds, 16 * 16 * 32, [] {
    xformc::multiply_pairs<0, 4, 6>();
    xformc::multiply_pairs<1, 4, 7>();
    xformc::multiply_pairs<2, 5, 6>();
    xformc::multiply_pairs<3, 5, 7>();
  });
}

}  // namespace

const Peak* peaks() {
  static const std::vector<Peak> found = [] {
    std::vector<Peak> all;
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool bf16 = __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1) != 0;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni")) {
      all = {{"float32", float32}, {"int16", int16}, {"int8", int8}};
      if (bf16) all.push_back({"bfloat16", bfloat16});
      if (bf16 && xformc::permit_tiles()) {
        all.push_back({"int8 tiles", tiles_of_bytes});
        all.push_back({"bfloat16 tiles", tiles_of_pairs});
      }
    }
    all.push_back({nullptr, nullptr});
    return all;
  }();
  return found.data();
}
#else
const Peak* peaks() {
  static const Peak none{nullptr, nullptr};
  return &none;
}
#endif
