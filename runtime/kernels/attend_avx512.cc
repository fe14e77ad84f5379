// The routines of attend.h for machines with AVX-512.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

namespace xformc {
namespace {

struct Vector {
  static constexpr int width = 16, columns = 4;
  using Float = __m512;

  static __mmask16 mask(int count) { return static_cast<__mmask16>((1u << count) - 1); }
  static Float all(float value) { return _mm512_set1_ps(value); }
  static Float load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Float a) { _mm512_storeu_ps(to, a); }
  static Float load_some(const float* from, int count, float other) {
    return _mm512_mask_loadu_ps(all(other), mask(count), from);
  }
  static void store_some(float* to, Float a, int count) { _mm512_mask_storeu_ps(to, mask(count), a); }

  // Loads float16 as bits; lanes that are not loaded are zero.
  static Float load(const uint16_t* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static Float load_some(const uint16_t* from, int count, float) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask(count), from));
  }
  static Float load(const int8_t* from) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }
  static Float load_some(const int8_t* from, int count, float) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask(count), from)));
  }
  static void store_half(uint16_t* to, Float a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
  }

  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
  static Float min(Float a, Float b) { return _mm512_min_ps(a, b); }
  static float sum(Float a) { return _mm512_reduce_add_ps(a); }
  static float highest(Float a) { return _mm512_reduce_max_ps(a); }
  static double sum_double(Float a) {
    const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
    return _mm512_reduce_add_pd(_mm512_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(a)), _mm512_cvtps_pd(high)));
  }
  static void keep(Float& a) { asm("" : "+v"(a)); }
  // Lane i is the sum of the lanes of a[i]. Each step halves the number of vectors, and adds lanes half as far apart.
  static Float sums(const Float* a) {
    Float eight[8], four[4], two[2];
    for (int i = 0; i < 8; ++i) {
      const Float mixed = _mm512_mask_blend_ps(0xff00, a[i + 8], a[i]);
      eight[i] = add(_mm512_mask_blend_ps(0xff00, a[i], a[i + 8]), _mm512_shuffle_f32x4(mixed, mixed, 0x4e));
    }
    for (int i = 0; i < 4; ++i) {
      const Float mixed = _mm512_mask_blend_ps(0xf0f0, eight[i + 4], eight[i]);
      four[i] = add(_mm512_mask_blend_ps(0xf0f0, eight[i], eight[i + 4]), _mm512_shuffle_f32x4(mixed, mixed, 0xb1));
    }
    for (int i = 0; i < 2; ++i) {
      const Float mixed = _mm512_mask_blend_ps(0xcccc, four[i + 2], four[i]);
      two[i] = add(_mm512_mask_blend_ps(0xcccc, four[i], four[i + 2]), _mm512_permute_ps(mixed, 0x4e));
    }
    const Float mixed = _mm512_mask_blend_ps(0xaaaa, two[1], two[0]);
    return add(_mm512_mask_blend_ps(0xaaaa, two[0], two[1]), _mm512_permute_ps(mixed, 0xb1));
  }
  static unsigned at_least(Float a, Float b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
  static void compress(Float a, int32_t first, unsigned kept, float* values, int32_t* places) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __mmask16 mask = static_cast<__mmask16>(kept);
    _mm512_storeu_ps(values, _mm512_maskz_compress_ps(mask, a));
    const __m512i place = _mm512_add_epi32(lane, _mm512_set1_epi32(first));
    _mm512_storeu_si512(places, _mm512_maskz_compress_epi32(mask, place));
  }
  static Float shift(Float a, Float n) {
    const __m512i power = _mm512_slli_epi32(_mm512_castps_si512(n), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), power));
  }
};

}  // namespace
}  // namespace xformc

#include "attend_routines.h"
#include "search_routines.h"
#include "wave_routines.h"

namespace xformc {
const StepRoutines STEP_AVX512 = {attend, attend,   attend, pack,    pack,  pack,
                                  narrow, quantize, scan,   collect, weigh, waves};
}
#endif
