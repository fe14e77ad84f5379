// The routines of attend.h for every 64-bit ARM.
#if defined(__aarch64__)
#include "neon.h"

namespace xformc {
namespace {

struct Vector : Floats {
  static constexpr int columns = 2;

  using Floats::load;
  using Floats::load_some;
  // Loads float16 as bits; lanes that are not loaded are zero.
  static Float load(const uint16_t* from) { return load_float16(from); }
  static Float load_some(const uint16_t* from, int count, float) {
    uint16_t some[width] = {};
    std::memcpy(some, from, count * sizeof(uint16_t));
    return load(some);
  }
  static Float load(const int8_t* from) {
    const int16x8_t wide = vmovl_s8(vld1_s8(from));
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), vcvtq_f32_s32(vmovl_high_s16(wide))};
  }
  static Float load_some(const int8_t* from, int count, float) {
    int8_t some[width] = {};
    std::memcpy(some, from, count);
    return load(some);
  }
  static void store_half(uint16_t* to, Float a) {
    vst1q_u16(to, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(a.low), a.high)));
  }

  static float highest(Float a) {
    const float32x4_t four = max(a.low, a.high), two = max(four, vextq_f32(four, four, 2));
    const float left = vgetq_lane_f32(two, 0), right = vgetq_lane_f32(two, 1);
    return left > right ? left : right;
  }
  static double sum_double(Float a) {
    const float64x2_t low = vaddq_f64(vcvt_f64_f32(vget_low_f32(a.low)), vcvt_high_f64_f32(a.low));
    const float64x2_t high = vaddq_f64(vcvt_f64_f32(vget_low_f32(a.high)), vcvt_high_f64_f32(a.high));
    return vaddvq_f64(vaddq_f64(low, high));
  }
  static void keep(Float&) {}
  // Lane i is the sum of the lanes of a[i]. Each step adds lanes half as far apart.
  static Float sums(const Float* a) { return {sums_of_four(a), sums_of_four(a + 4)}; }
  static float32x4_t sums_of_four(const Float* a) {
    float64x2_t four[4];
    for (int i = 0; i < 4; ++i) four[i] = vreinterpretq_f64_f32(vaddq_f32(a[i].low, a[i].high));
    const auto two = [&](int i) {
      return vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(four[i], four[i + 1])),
                       vreinterpretq_f32_f64(vzip2q_f64(four[i], four[i + 1])));
    };
    return vpaddq_f32(two(0), two(2));
  }
  static unsigned at_least(Float a, Float b) {
    const uint32x4_t places = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(vcgeq_f32(a.low, b.low), places)) |
           vaddvq_u32(vandq_u32(vcgeq_f32(a.high, b.high), places)) << 4;
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
  static Float shift(Float a, Float n) { return {shift(a.low, n.low), shift(a.high, n.high)}; }
  static float32x4_t shift(float32x4_t a, float32x4_t n) {
    const int32x4_t power = vshlq_n_s32(vreinterpretq_s32_f32(n), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(a), power));
  }
};

}  // namespace
}  // namespace xformc

#include "attend_routines.h"
#include "search_routines.h"
#include "wave_routines.h"

namespace xformc {
const StepRoutines STEP_NEON = {attend, attend,   attend, pack,    pack,  pack,
                                narrow, quantize, scan,   collect, weigh, waves};
}
#endif
