// The routines of gemm.h with vectors of AVX-512 and its dot products of bytes (VNNI).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "gemm.h"

namespace xformc {
namespace {

struct Vector {
  static constexpr int width = 16, rows = 12, four_size = 4;
  static constexpr bool fused = true;
  using Float = __m512;
  using Int = __m512i;
  using Four = Int;
  using Mask = __mmask16;

  static Float zero() { return _mm512_setzero_ps(); }
  static Float all(float value) { return _mm512_set1_ps(value); }
  static Int all(int32_t value) { return _mm512_set1_epi32(value); }
  static Float load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Float a) { _mm512_storeu_ps(to, a); }
  static Int load4(const uint8_t* from) { return _mm512_loadu_si512(from); }
  static Int load_bytes(const uint8_t* from) { return load4(from); }
  static Int start(int32_t row_offset) { return all(row_offset); }
  static Mask mask(int count) { return count >= 16 ? 0xffff : count <= 0 ? 0 : (1u << count) - 1; }
  static Float load_some(const float* from, Mask mask) { return _mm512_maskz_loadu_ps(mask, from); }
  static void store_some(float* to, Float a, Mask mask) { _mm512_mask_storeu_ps(to, mask, a); }
  static Float keep(Float a, Mask mask) { return _mm512_maskz_mov_ps(mask, a); }

  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float div(Float a, Float b) { return _mm512_div_ps(a, b); }
  static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
  static Float min(Float a, Float b) { return _mm512_min_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float if_less(Float a, Float b, Float yes, Float no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
  }
  static float sum(Float a) { return _mm512_reduce_add_ps(a); }

  static Int add_int(Int a, Int b) { return _mm512_add_epi32(a, b); }
  static Int max_int(Int a, Int b) { return _mm512_max_epi32(a, b); }
  static int32_t sum_int(Int a) {
    const __m256i eight = _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
  }
  static int32_t max_of_int(Int a) { return _mm512_reduce_max_epi32(a); }
  static Int abs_bits(Float a) { return _mm512_and_epi32(_mm512_castps_si512(a), all(int32_t{0x7fffffff})); }
  // As an instruction, because GCC 12 copies the sums of the intrinsic _mm512_dpbusd_epi32 to and fro.
  static Int dot4(Int sum, Int weights, Int x) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(x));
    return sum;
  }

  static Int dot2(Int sum, Int weights, Int x) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(x));
    return sum;
  }

  static Int start_nibbles(int32_t row_offset) { return all(row_offset); }
  static Int dot_nibbles(Int sum, Int nibbles, Int x) { return dot4(sum, nibbles, x); }
  static Int sum_nibbles(Int sum, int32_t) { return sum; }

  static Int low_nibbles(Int a) { return _mm512_and_si512(a, all(int32_t{0x0f0f0f0f})); }
  static Int high_nibbles(Int a) { return low_nibbles(_mm512_srli_epi32(a, 4)); }

  static Float to_float(Int a) { return _mm512_cvtepi32_ps(a); }
  static Int to_int(Float a) { return _mm512_cvtps_epi32(a); }
  static void to_bytes(Int a, int8_t* to) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtsepi32_epi8(a));
  }
  static void to_fours(Int a, int8_t* to) { to_bytes(a, to); }
  static Four all_fours(const int8_t* x) { return all(load_four(x)); }
  static Float power_of_two(Int n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, all(int32_t{127})), 23));
  }

  static __m256i load16(const uint16_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
  static Float widen_float16(const uint16_t* from) { return _mm512_cvtph_ps(load16(from)); }
  static Float even_pairs(const uint8_t* from) { return _mm512_castsi512_ps(_mm512_slli_epi32(load4(from), 16)); }
  static Float odd_pairs(const uint8_t* from) {
    return _mm512_castsi512_ps(_mm512_and_si512(load4(from), all(int32_t{-65536})));
  }
  // Rounded to bfloat16, where the processor can; what is too small for a normal number becomes 0.
  static void store_pairs(void* to, Float a) {
    __m256i rounded;
    asm("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(a));
    _mm256_storeu_si256(static_cast<__m256i*>(to), rounded);
  }
  static Float round_pairs(Float a) {
    const Int bits = _mm512_castps_si512(a), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), all(int32_t{1}));
    const Int nearest = add_int(add_int(bits, all(int32_t{0x7fff})), odd);
    const Int quiet = _mm512_or_si512(bits, all(int32_t{0x00400000}));
    const Int kept = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), nearest, quiet);
    return _mm512_castsi512_ps(_mm512_and_si512(kept, all(int32_t{-65536})));
  }
  static Float widen_bfloat16(const uint16_t* from) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load16(from)), 16));
  }
};

}  // namespace
}  // namespace xformc

#include "gemm_routines.h"
