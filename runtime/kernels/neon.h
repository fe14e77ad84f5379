// Two registers of NEON as one vector of eight floats: what gemm_neon.h and attend_neon.cc share. Everything here is
// local to the file that includes it, because each is compiled for another machine.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace xformc {
namespace {

struct Floats {
  static constexpr int width = 8;
  struct Float {
    float32x4_t low, high;
  };

  static Float all(float value) { return {vdupq_n_f32(value), vdupq_n_f32(value)}; }
  static Float load(const float* from) { return {vld1q_f32(from), vld1q_f32(from + 4)}; }
  static void store(float* to, Float a) {
    vst1q_f32(to, a.low);
    vst1q_f32(to + 4, a.high);
  }
  static Float load_some(const float* from, int count, float other) {
    float some[width];
    store(some, all(other));
    std::memcpy(some, from, count * sizeof(float));
    return load(some);
  }
  static void store_some(float* to, Float a, int count) {
    float some[width];
    store(some, a);
    std::memcpy(to, some, count * sizeof(float));
  }

  static Float load_float16(const uint16_t* from) {
    const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(from));
    return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
  }

  static Float add(Float a, Float b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
  static Float sub(Float a, Float b) { return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
  static Float mul(Float a, Float b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
  static Float fma(Float a, Float b, Float c) {
    return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
  }
  // FMAX and FMIN would give no number wherever either is none.
  static float32x4_t max(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static float32x4_t min(float32x4_t a, float32x4_t b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  static Float max(Float a, Float b) { return {max(a.low, b.low), max(a.high, b.high)}; }
  static Float min(Float a, Float b) { return {min(a.low, b.low), min(a.high, b.high)}; }
  static float sum(Float a) {
    const float32x4_t four = vaddq_f32(a.low, a.high);
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }
};

}  // namespace
}  // namespace xformc
