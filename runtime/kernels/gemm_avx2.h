// The routines of gemm.h for AVX2, FMA and F16C, with the dot product of bytes (AVX-VNNI) in the file that is compiled
// for it.
#include <immintrin.h>

#include <cstdint>

#include "gemm.h"

namespace xformc {
namespace {

struct Vector {
  static constexpr int width = 8;
  static constexpr bool fused = true;
  using Float = __m256;
  using Int = __m256i;
  using Mask = __m256i;

  static Float zero() { return _mm256_setzero_ps(); }
  static Float all(float value) { return _mm256_set1_ps(value); }
  static Int all(int32_t value) { return _mm256_set1_epi32(value); }
  static Float load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Float a) { _mm256_storeu_ps(to, a); }
  static Int load4(const uint8_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
  static Int start(int32_t row_offset) { return all(row_offset); }
  static Mask mask(int count) {
    return _mm256_cmpgt_epi32(all(int32_t{count}), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Float load_some(const float* from, Mask mask) { return _mm256_maskload_ps(from, mask); }
  static void store_some(float* to, Float a, Mask mask) { _mm256_maskstore_ps(to, mask, a); }
  static Float keep(Float a, Mask mask) { return _mm256_and_ps(a, _mm256_castsi256_ps(mask)); }

  static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float div(Float a, Float b) { return _mm256_div_ps(a, b); }
  static Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
  static Float min(Float a, Float b) { return _mm256_min_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float if_less(Float a, Float b, Float yes, Float no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static float sum(Float a) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
  }

  static Int add_int(Int a, Int b) { return _mm256_add_epi32(a, b); }
  static Int max_int(Int a, Int b) { return _mm256_max_epi32(a, b); }
  static int32_t sum_int(Int a) {
    alignas(32) int32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), a);
    uint32_t result = 0;
    for (const int32_t lane : lanes) result += static_cast<uint32_t>(lane);
    return static_cast<int32_t>(result);
  }
  static int32_t max_of_int(Int a) {
    alignas(32) int32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), a);
    int32_t result = lanes[0];
    for (const int32_t lane : lanes) result = lane > result ? lane : result;
    return result;
  }
  static Int abs_bits(Float a) { return _mm256_and_si256(_mm256_castps_si256(a), all(int32_t{0x7fffffff})); }
  static Int low_nibbles(Int a) { return _mm256_and_si256(a, all(int32_t{0x0f0f0f0f})); }
  static Int high_nibbles(Int a) { return low_nibbles(_mm256_srli_epi32(a, 4)); }

  static Float to_float(Int a) { return _mm256_cvtepi32_ps(a); }
  static Int to_int(Float a) { return _mm256_cvtps_epi32(a); }
  static void to_bytes(Int a, int8_t* to) {
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(words, words));
  }
  static Float power_of_two(Int n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, all(int32_t{127})), 23));
  }

  static __m128i load16(const uint16_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
  static Float widen_float16(const uint16_t* from) { return _mm256_cvtph_ps(load16(from)); }
  static Float even_pairs(const uint8_t* from) { return _mm256_castsi256_ps(_mm256_slli_epi32(load4(from), 16)); }
  static Float odd_pairs(const uint8_t* from) {
    return _mm256_castsi256_ps(_mm256_and_si256(load4(from), all(int32_t{-65536})));
  }
  static Float round_pairs(Float a) {
    const Int bits = _mm256_castps_si256(a), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), all(int32_t{1}));
    const Int nearest = add_int(add_int(bits, all(int32_t{0x7fff})), odd);
    const Int quiet = _mm256_or_si256(bits, all(int32_t{0x00400000}));
    const Int kept = _mm256_blendv_epi8(nearest, quiet, _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
    return _mm256_castsi256_ps(_mm256_and_si256(kept, all(int32_t{-65536})));
  }
  static Float widen_bfloat16(const uint16_t* from) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(from)), 16));
  }

#if defined(__AVXVNNI__) || defined(__AVX512VNNI__)
// The instructions of AVX-512 do the same: tests/kernels compiles them for processors that lack AVX-VNNI.
#if defined(__AVX512VNNI__)
#define DOT(name) name " %2, %1, %0"
#else
#define DOT(name) "%{vex%} " name " %2, %1, %0"
#endif
  static constexpr int rows = 6, four_size = 4;
  using Four = Int;

  static Four load_bytes(const uint8_t* from) { return load4(from); }
  static void to_fours(Int a, int8_t* to) { to_bytes(a, to); }
  static Four all_fours(const int8_t* x) { return all(load_four(x)); }
  static Int dot4(Int sum, Int weights, Int x) {
    asm(DOT("vpdpbusd") : "+x"(sum) : "x"(weights), "x"(x));
    return sum;
  }

  static Int dot2(Int sum, Int weights, Int x) {
    asm(DOT("vpdpwssd") : "+x"(sum) : "x"(weights), "x"(x));
    return sum;
  }
#undef DOT

  static Int start_nibbles(int32_t row_offset) { return all(row_offset); }
  static Int dot_nibbles(Int sum, Int nibbles, Int x) { return dot4(sum, nibbles, x); }
  static Int sum_nibbles(Int sum, int32_t) { return sum; }
#else
  static constexpr int rows = 5, four_size = 8;

  // The bytes of even and of odd place apart, in 16 bits, where sums of products are exact. A packed row has them so.
  struct Four {
    Int even, odd;
  };

  static Four load_bytes(const uint8_t* from) {
    const Int bytes = load4(from);
    return {_mm256_and_si256(bytes, all(int32_t{0x00ff00ff})), _mm256_srli_epi16(bytes, 8)};
  }
  static void to_fours(Int a, int8_t* to) {
    int8_t bytes[width];
    to_bytes(a, bytes);
    const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    const __m128i words = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_shuffle_epi8(words, order));
  }
  static Four all_fours(const int8_t* x) { return {all(load_four(x)), all(load_four(x + 4))}; }
  static Int dot4(Int sum, Four weights, Four x) { return dot2(dot2(sum, weights.even, x.even), weights.odd, x.odd); }

  static Int dot2(Int sum, Int weights, Int x) { return _mm256_add_epi32(sum, _mm256_madd_epi16(weights, x)); }

  // Pairs of products in 16 bits: those of a group add up to at most 8 * 2 * 15 * 128, less than 2^15.
  static Int start_nibbles(int32_t) { return all(int32_t{0}); }
  static Int dot_nibbles(Int sum, Int nibbles, Int x) {
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(nibbles, x));
  }
  static Int sum_nibbles(Int sum, int32_t row_offset) {
    return add_int(_mm256_madd_epi16(sum, all(int32_t{0x00010001})), all(row_offset));
  }
#endif
};

}  // namespace
}  // namespace xformc

#include "gemm_routines.h"
