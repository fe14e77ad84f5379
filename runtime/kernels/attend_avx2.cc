// The routines of attend.h for machines with AVX2 and fused multiply-add.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

namespace xformc {
namespace {

struct Vector {
  static constexpr int width = 8, columns = 2;
  using Float = __m256;

  static __m256i mask(int count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Float all(float value) { return _mm256_set1_ps(value); }
  static Float load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Float a) { _mm256_storeu_ps(to, a); }
  static Float load_some(const float* from, int count, float other) {
    const __m256i some = mask(count);
    return _mm256_blendv_ps(all(other), _mm256_maskload_ps(from, some), _mm256_castsi256_ps(some));
  }
  static void store_some(float* to, Float a, int count) { _mm256_maskstore_ps(to, mask(count), a); }

  // Loads float16 as bits; lanes that are not loaded are zero.
  static Float load(const uint16_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static Float load_some(const uint16_t* from, int count, float) {
    uint16_t some[8] = {};
    __builtin_memcpy(some, from, count * sizeof(uint16_t));
    return load(some);
  }
  static Float load(const int8_t* from) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
  }
  static Float load_some(const int8_t* from, int count, float) {
    int8_t some[8] = {};
    __builtin_memcpy(some, from, count);
    return load(some);
  }
  static void store_half(uint16_t* to, Float a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
  }

  static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
  static Float min(Float a, Float b) { return _mm256_min_ps(a, b); }
  static float sum(Float a) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float highest(Float a) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
  static double sum_double(Float a) {
    const __m256d four =
        _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(a)), _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)));
    const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
  }
  static void keep(Float& a) { asm("" : "+x"(a)); }
  // Lane i is the sum of the lanes of a[i]. Each step halves the number of vectors, and adds lanes half as far apart.
  static Float sums(const Float* a) {
    Float half[4], quarter[2];
    for (int i = 0; i < 4; ++i) {
      const Float mixed = _mm256_blend_ps(a[i + 4], a[i], 0xf0);
      half[i] = add(_mm256_blend_ps(a[i], a[i + 4], 0xf0), _mm256_permute2f128_ps(mixed, mixed, 1));
    }
    for (int i = 0; i < 2; ++i) {
      const Float mixed = _mm256_blend_ps(half[i + 2], half[i], 0xcc);
      quarter[i] = add(_mm256_blend_ps(half[i], half[i + 2], 0xcc), _mm256_permute_ps(mixed, 0x4e));
    }
    const Float mixed = _mm256_blend_ps(quarter[1], quarter[0], 0xaa);
    return add(_mm256_blend_ps(quarter[0], quarter[1], 0xaa), _mm256_permute_ps(mixed, 0xb1));
  }
  static unsigned at_least(Float a, Float b) {
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)));
  }
  static void compress(Float a, int32_t first, unsigned kept, float* values, int32_t* places) {
    float lanes[width];
    store(lanes, a);
    for (; kept != 0; kept &= kept - 1) {
      const int lane = __builtin_ctz(kept);
      *values++ = lanes[lane];
      *places++ = first + lane;
    }
  }
  static Float shift(Float a, Float n) {
    const __m256i power = _mm256_slli_epi32(_mm256_castps_si256(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), power));
  }
};

}  // namespace
}  // namespace xformc

#include "attend_routines.h"
#include "search_routines.h"
#include "wave_routines.h"

namespace xformc {
const StepRoutines STEP_AVX2 = {attend, attend,   attend, pack,    pack,  pack,
                                narrow, quantize, scan,   collect, weigh, waves};
}
#endif
