// The routines of gemm.h for any machine, with the compiler's portable vectors.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "gemm.h"

namespace xformc {
namespace {

struct Vector {
  static constexpr int width = 4, rows = 6, four_size = 4;
  static constexpr bool fused = false;
  typedef float Float __attribute__((vector_size(16)));
  typedef int32_t Int __attribute__((vector_size(16)));
  typedef int16_t Short __attribute__((vector_size(16)));
  typedef uint32_t Unsigned __attribute__((vector_size(16)));
  using Four = Int;
  using Mask = int;

  static Float zero() { return Float{}; }
  static Float all(float value) { return Float{} + value; }
  static Int all(int32_t value) { return Int{} + value; }
  static Float load(const float* from) {
    Float result;
    std::memcpy(&result, from, sizeof result);
    return result;
  }
  static void store(float* to, Float a) { std::memcpy(to, &a, sizeof a); }
  static Int load4(const uint8_t* from) {
    Int result;
    std::memcpy(&result, from, sizeof result);
    return result;
  }
  static Int load_bytes(const uint8_t* from) { return load4(from); }
  static Int start(int32_t row_offset) { return all(row_offset); }
  static Mask mask(int count) { return count >= width ? width : count <= 0 ? 0 : count; }
  static Float load_some(const float* from, Mask mask) {
    Float result{};
    std::memcpy(&result, from, mask * sizeof(float));
    return result;
  }
  static void store_some(float* to, Float a, Mask mask) { std::memcpy(to, &a, mask * sizeof(float)); }
  static Float keep(Float a, Mask mask) {
    for (int i = mask; i < width; ++i) a[i] = 0;
    return a;
  }

  static Float add(Float a, Float b) { return a + b; }
  static Float sub(Float a, Float b) { return a - b; }
  static Float mul(Float a, Float b) { return a * b; }
  static Float div(Float a, Float b) { return a / b; }
  static Float max(Float a, Float b) { return a > b ? a : b; }
  static Float min(Float a, Float b) { return a < b ? a : b; }
  static Float fma(Float a, Float b, Float c) { return a * b + c; }  // never contracted: see CMakeLists.txt
  static Float if_less(Float a, Float b, Float yes, Float no) { return a < b ? yes : no; }
  static float sum(Float a) { return (a[0] + a[1]) + (a[2] + a[3]); }

  static Int add_int(Int a, Int b) {
    return reinterpret_cast<Int>(reinterpret_cast<Unsigned>(a) + reinterpret_cast<Unsigned>(b));
  }
  static Int max_int(Int a, Int b) { return a > b ? a : b; }
  static int32_t sum_int(Int a) {
    const auto bits = reinterpret_cast<Unsigned>(a);
    return static_cast<int32_t>(bits[0] + bits[1] + bits[2] + bits[3]);
  }
  static int32_t max_of_int(Int a) {
    const int32_t left = a[0] > a[1] ? a[0] : a[1], right = a[2] > a[3] ? a[2] : a[3];
    return left > right ? left : right;
  }
  static Int abs_bits(Float a) { return reinterpret_cast<Int>(a) & 0x7fffffff; }
  static Int dot4(Int sum, Int weights, Int x) {
    for (int byte = 0; byte < 4; ++byte) {
      sum = add_int(sum, (weights >> 8 * byte & 255) * (x << (24 - 8 * byte) >> 24));
    }
    return sum;
  }

  static Int dot2(Int sum, Int weights, Int x) {
    return add_int(add_int(sum, (weights << 16 >> 16) * (x << 16 >> 16)), (weights >> 16) * (x >> 16));
  }

  static Int start_nibbles(int32_t row_offset) { return all(row_offset); }
  static Int dot_nibbles(Int sum, Int nibbles, Int x) { return dot4(sum, nibbles, x); }
  static Int sum_nibbles(Int sum, int32_t) { return sum; }

  static Int low_nibbles(Int a) { return a & 0x0f0f0f0f; }
  static Int high_nibbles(Int a) { return a >> 4 & 0x0f0f0f0f; }

  static Float to_float(Int a) { return __builtin_convertvector(a, Float); }
  static Int to_int(Float a) {
    Int result;
    for (int i = 0; i < width; ++i) {
      const float whole = std::nearbyintf(a[i]);
      result[i] = std::fabs(whole) < 0x1p31f ? static_cast<int32_t>(whole) : INT32_MIN;
    }
    return result;
  }
  static void to_bytes(Int a, int8_t* to) {
    for (int i = 0; i < width; ++i) to[i] = static_cast<int8_t>(a[i] > 127 ? 127 : a[i] < -128 ? -128 : a[i]);
  }
  static void to_fours(Int a, int8_t* to) { to_bytes(a, to); }
  static Four all_fours(const int8_t* x) { return all(load_four(x)); }
  static Float power_of_two(Int n) { return reinterpret_cast<Float>((n + 127) << 23); }

  static Float even_pairs(const uint8_t* from) { return reinterpret_cast<Float>(load4(from) << 16); }
  static Float odd_pairs(const uint8_t* from) { return reinterpret_cast<Float>(load4(from) & -65536); }
  static Float round_pairs(Float a) {
    const Int bits = reinterpret_cast<Int>(a), nearest = add_int(bits, (bits >> 16 & 1) + 0x7fff);
    return reinterpret_cast<Float>((a == a ? nearest : bits | 0x00400000) & -65536);
  }
  static Int load16(const uint16_t* from) { return Int{from[0], from[1], from[2], from[3]}; }
  static Float widen_bfloat16(const uint16_t* from) { return reinterpret_cast<Float>(load16(from) << 16); }
  // The exponent of a half is moved; subnormal ones are whole numbers of 2^-24, so that no step of it is subnormal in
  // float32, which a process may have switched off; infinity and NaN apart.
  static Float widen_float16(const uint16_t* from) {
    const Int bits = load16(from), size = bits & 0x7fff;
    const Float small = to_float(size) * 0x1p-24f;
    const Int finite = size < 0x400 ? reinterpret_cast<Int>(small) : (size << 13) + (112 << 23);
    const Int magnitude = size >= 0x7c00 ? (size << 13 | 0x7f800000) : finite;
    return reinterpret_cast<Float>(magnitude | (bits & 0x8000) << 16);
  }
};

}  // namespace
}  // namespace xformc

#include "gemm_routines.h"

namespace xformc {
const Routines PORTABLE = routines_of("those that every machine of this kind has");
}
