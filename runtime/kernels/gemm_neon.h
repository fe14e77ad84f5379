// The routines of gemm.h for NEON, with the dot product of bytes (ARMv8.2) in the file that is compiled for it.
#include "gemm.h"
#include "neon.h"

namespace xformc {
namespace {

struct Vector : Floats {
  static constexpr int rows = 6, four_size = 4;
  static constexpr bool fused = true;
  struct Int {
    int32x4_t low, high;
  };
  using Four = Int;
  using Mask = int;

  using Floats::all;
  using Floats::store_some;
  static Float zero() { return all(0.0f); }
  static Int all(int32_t value) { return {vdupq_n_s32(value), vdupq_n_s32(value)}; }
  static Int load4(const uint8_t* from) {
    return {vreinterpretq_s32_u8(vld1q_u8(from)), vreinterpretq_s32_u8(vld1q_u8(from + 16))};
  }
  // Bytes are multiplied as signed ones. q is q + 128 with its highest bit turned over, and nothing has to make up for it.
  static Int load_bytes(const uint8_t* from) {
    const uint8x16_t highest = vdupq_n_u8(128);
    return {vreinterpretq_s32_u8(veorq_u8(vld1q_u8(from), highest)),
            vreinterpretq_s32_u8(veorq_u8(vld1q_u8(from + 16), highest))};
  }
  static Int start(int32_t) { return all(int32_t{0}); }
  static Mask mask(int count) { return count >= width ? width : count <= 0 ? 0 : count; }
  static Float load_some(const float* from, Mask mask) { return Floats::load_some(from, mask, 0); }
  static Float keep(Float a, Mask mask) {
    const int32x4_t places = {0, 1, 2, 3}, end = vdupq_n_s32(mask);
    const uint32x4_t low = vcgtq_s32(end, places), high = vcgtq_s32(end, vaddq_s32(places, vdupq_n_s32(4)));
    return {floats(vandq_u32(bits(a.low), low)), floats(vandq_u32(bits(a.high), high))};
  }

  static Float div(Float a, Float b) { return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)}; }
  static Float if_less(Float a, Float b, Float yes, Float no) {
    return {vbslq_f32(vcltq_f32(a.low, b.low), yes.low, no.low),
            vbslq_f32(vcltq_f32(a.high, b.high), yes.high, no.high)};
  }

  static Int add_int(Int a, Int b) { return {vaddq_s32(a.low, b.low), vaddq_s32(a.high, b.high)}; }
  static Int max_int(Int a, Int b) { return {vmaxq_s32(a.low, b.low), vmaxq_s32(a.high, b.high)}; }
  static int32_t sum_int(Int a) { return vaddvq_s32(vaddq_s32(a.low, a.high)); }
  static int32_t max_of_int(Int a) { return vmaxvq_s32(vmaxq_s32(a.low, a.high)); }
  static Int abs_bits(Float a) {
    return {vreinterpretq_s32_f32(vabsq_f32(a.low)), vreinterpretq_s32_f32(vabsq_f32(a.high))};
  }

  static Int dot4(Int sum, Int weights, Int x) {
    return {dot4(sum.low, weights.low, x.low), dot4(sum.high, weights.high, x.high)};
  }
  static int32x4_t dot4(int32x4_t sum, int32x4_t weights, int32x4_t x) {
    const int8x16_t a = vreinterpretq_s8_s32(weights), b = vreinterpretq_s8_s32(x);
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(sum, a, b);
#else
    // Two products are at most 2 * 128 * 127 in size, so that their sum is exact in 16 bits.
    return vpadalq_s16(sum, vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b)));
#endif
  }

  static Int dot2(Int sum, Int weights, Int x) {
    return {dot2(sum.low, weights.low, x.low), dot2(sum.high, weights.high, x.high)};
  }
  static int32x4_t dot2(int32x4_t sum, int32x4_t weights, int32x4_t x) {
    const int16x8_t a = vreinterpretq_s16_s32(weights), b = vreinterpretq_s16_s32(x);
    const int32x4_t low = vmull_s16(vget_low_s16(a), vget_low_s16(b)), high = vmull_high_s16(a, b);
    return vaddq_s32(sum, vpaddq_s32(low, high));
  }

  static Int start_nibbles(int32_t row_offset) { return all(row_offset); }
  static Int dot_nibbles(Int sum, Int nibbles, Int x) { return dot4(sum, nibbles, x); }
  static Int sum_nibbles(Int sum, int32_t) { return sum; }

  static Int low_nibbles(Int a) {
    const int32x4_t nibble = vreinterpretq_s32_u8(vdupq_n_u8(15));
    return {vandq_s32(a.low, nibble), vandq_s32(a.high, nibble)};
  }
  static Int high_nibbles(Int a) { return {high_nibbles(a.low), high_nibbles(a.high)}; }
  static int32x4_t high_nibbles(int32x4_t a) { return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(a), 4)); }

  static Float to_float(Int a) { return {vcvtq_f32_s32(a.low), vcvtq_f32_s32(a.high)}; }
  static Int to_int(Float a) { return {vcvtnq_s32_f32(a.low), vcvtnq_s32_f32(a.high)}; }
  static void to_bytes(Int a, int8_t* to) { vst1_s8(to, vqmovn_s16(vqmovn_high_s32(vqmovn_s32(a.low), a.high))); }
  static void to_fours(Int a, int8_t* to) { to_bytes(a, to); }
  static Four all_fours(const int8_t* x) { return all(load_four(x)); }
  static Float power_of_two(Int n) { return {power_of_two(n.low), power_of_two(n.high)}; }
  static float32x4_t power_of_two(int32x4_t n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
  }

  static Float widen_float16(const uint16_t* from) { return load_float16(from); }
  static Float even_pairs(const uint8_t* from) { return {even_pair(from), even_pair(from + 16)}; }
  static Float odd_pairs(const uint8_t* from) { return {odd_pair(from), odd_pair(from + 16)}; }
  static Float round_pairs(Float a) { return {round_pair(a.low), round_pair(a.high)}; }
  static Float widen_bfloat16(const uint16_t* from) {
    const uint16x8_t halves = vld1q_u16(from);
    return {floats(vshll_n_u16(vget_low_u16(halves), 16)), floats(vshll_high_n_u16(halves, 16))};
  }

 private:
  static float32x4_t even_pair(const uint8_t* from) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u8(vld1q_u8(from)), 16));
  }
  static float32x4_t odd_pair(const uint8_t* from) {
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u8(vld1q_u8(from)), vdupq_n_u32(0xffff0000)));
  }
  static float32x4_t round_pair(float32x4_t a) {
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits(a), 16), vdupq_n_u32(1));
    const uint32x4_t nearest = vaddq_u32(bits(a), vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t kept = vbslq_u32(vceqq_f32(a, a), nearest, vorrq_u32(bits(a), vdupq_n_u32(0x00400000)));
    return vreinterpretq_f32_u32(vandq_u32(kept, vdupq_n_u32(0xffff0000)));
  }
  static uint32x4_t bits(float32x4_t a) { return vreinterpretq_u32_f32(a); }
  static float32x4_t floats(uint32x4_t a) { return vreinterpretq_f32_u32(a); }
};

}  // namespace
}  // namespace xformc

#include "gemm_routines.h"
