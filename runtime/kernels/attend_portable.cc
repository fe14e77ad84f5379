// The routines of attend.h for any machine, with the compiler's portable vectors.
#include <cstdint>
#include <cstring>

namespace xformc {
namespace {

struct Vector {
  static constexpr int width = 4, columns = 2;
  typedef float Float __attribute__((vector_size(16)));
  typedef int32_t Int __attribute__((vector_size(16)));
  typedef uint32_t Unsigned __attribute__((vector_size(16)));

  static Float all(float value) { return Float{} + value; }
  static Float load(const float* from) {
    Float result;
    std::memcpy(&result, from, sizeof result);
    return result;
  }
  static void store(float* to, Float a) { std::memcpy(to, &a, sizeof a); }
  static Float load_some(const float* from, int count, float other) {
    Float result = all(other);
    std::memcpy(&result, from, count * sizeof(float));
    return result;
  }
  static void store_some(float* to, Float a, int count) { std::memcpy(to, &a, count * sizeof(float)); }

  // float16, as bits; what is not loaded of it is zero. Its exponent counts from 112 less than that of float32.
  static Float load(const uint16_t* from) {
    const Int half{from[0], from[1], from[2], from[3]}, bits = half & 0x7fff;
    const Float small = __builtin_convertvector(bits, Float) * 0x1p-24f;  // no float16 is subnormal as a float32
    const Int size = bits < 0x400 ? reinterpret_cast<Int>(small) : (bits << 13) + (112 << 23);
    return reinterpret_cast<Float>(size | (half & 0x8000) << 16);
  }
  static Float load_some(const uint16_t* from, int count, float) {
    uint16_t some[4] = {};
    std::memcpy(some, from, count * sizeof(uint16_t));
    return load(some);
  }
  static Float load(const int8_t* from) {
    return __builtin_convertvector((Int{from[0], from[1], from[2], from[3]}), Float);
  }
  static Float load_some(const int8_t* from, int count, float) {
    int8_t some[4] = {};
    std::memcpy(some, from, count);
    return load(some);
  }
  static void store_half(uint16_t* to, Float a) {
    const Int bits = reinterpret_cast<Int>(a), sign = bits >> 16 & 0x8000;
    const Float size = reinterpret_cast<Float>(bits & 0x7fffffff);
    const Int whole = reinterpret_cast<Int>(size * 0x1p-112f);
    const Int small = reinterpret_cast<Int>(size + 0.5f) - 0x3f000000;  // with one half it ends where float16 does
    const Int large = add_int(whole, 0xfff + (whole >> 13 & 1)) >> 13;
    const Int half = (size < 0x1p-14f ? small : large) | sign;
    for (int i = 0; i < 4; ++i) to[i] = static_cast<uint16_t>(half[i]);
  }

  static Float add(Float a, Float b) { return a + b; }
  static Float sub(Float a, Float b) { return a - b; }
  static Float mul(Float a, Float b) { return a * b; }
  static Float fma(Float a, Float b, Float c) { return a * b + c; }
  static Float max(Float a, Float b) { return a > b ? a : b; }
  static Float min(Float a, Float b) { return a < b ? a : b; }
  static Int add_int(Int a, Int b) {
    return reinterpret_cast<Int>(reinterpret_cast<Unsigned>(a) + reinterpret_cast<Unsigned>(b));
  }
  static float sum(Float a) { return (a[0] + a[2]) + (a[1] + a[3]); }
  static float highest(Float a) {
    const Float pairs = max(a, Float{a[2], a[3], a[0], a[1]});
    return pairs[0] > pairs[1] ? pairs[0] : pairs[1];
  }
  static double sum_double(Float a) { return (static_cast<double>(a[0]) + a[2]) + (static_cast<double>(a[1]) + a[3]); }
  static void keep(Float&) {}
  static Float sums(const Float* a) { return Float{sum(a[0]), sum(a[1]), sum(a[2]), sum(a[3])}; }
  static unsigned at_least(Float a, Float b) {
    const Int yes = a >= b;
    return (yes[0] & 1) | (yes[1] & 2) | (yes[2] & 4) | (yes[3] & 8);
  }
  // a * 2^n, where the lowest bits of `n` as a pattern of bits are the whole number n.
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
    return reinterpret_cast<Float>(add_int(reinterpret_cast<Int>(a), reinterpret_cast<Int>(n) << 23));
  }
};

}  // namespace
}  // namespace xformc

#include "attend_routines.h"
#include "search_routines.h"
#include "wave_routines.h"

namespace xformc {
const StepRoutines STEP_PORTABLE = {attend, attend,   attend, pack,    pack,  pack,
                                    narrow, quantize, scan,   collect, weigh, waves};
}
