// Sines and cosines for any kind of vector; it is included after attend_routines.h. All routines give the same bits.
#include "attend.h"

namespace xformc {
namespace {

constexpr int HALF = WIDTH / 2;  // how many doubles are as long as a vector
typedef float Singles __attribute__((vector_size(4 * HALF)));
typedef double Doubles __attribute__((vector_size(8 * HALF)));
typedef int64_t Integers __attribute__((vector_size(8 * HALF)));

// Those of numbers less than 1e7, by polynomials for what is left of each beyond multiples of pi / 2. They are computed in
// double and so differ from the exact ones by no more than the rounding to float.
INLINE void small_waves(const float* x, int64_t quarters, float* results) {
  constexpr double BIG = 6755399441055744.0;  // 1.5 * 2^52: what is added to it is an integer, in its lowest bits
  Singles given;
  __builtin_memcpy(&given, x, sizeof given);
  const Doubles one = __builtin_convertvector(given, Doubles), count = one * 0.6366197723675814 + BIG;
  const Doubles turns = count - BIG, rest = (one - turns * 1.5707963267341256) - turns * 6.077100506506192e-11;
  const Doubles square = rest * rest;
  const Doubles sine =
      rest + rest * square * (-1.0 / 6 + square * (1.0 / 120 + square * (-1.0 / 5040 + square * (1.0 / 362880))));
  const Doubles cosine =
      1 + square * (-0.5 + square * (1.0 / 24 + square * (-1.0 / 720 + square * (1.0 / 40320 - square / 3628800))));
  const Integers quarter = reinterpret_cast<Integers>(count) + quarters;
  const Doubles found = (quarter & 1) == 0 ? sine : cosine;
  const Integers sign = (quarter & 2) << 62;
  const Singles rounded =
      __builtin_convertvector(reinterpret_cast<Doubles>(reinterpret_cast<Integers>(found) ^ sign), Singles);
  __builtin_memcpy(results, &rounded, sizeof rounded);
}

void waves(const float* x, int64_t count, int64_t quarters, float* results) {
  constexpr float LARGE = 1e7f;
  int64_t first = 0;
  for (; first + HALF <= count; first += HALF) small_waves(x + first, quarters, results + first);
  if (first < count) {
    float some[HALF] = {}, found[HALF];
    const size_t left = static_cast<size_t>(count - first) * sizeof(float);
    __builtin_memcpy(some, x + first, left);
    small_waves(some, quarters, found);
    __builtin_memcpy(results + first, found, left);
  }
  int large = 0;
  for (int64_t i = 0; i < count; ++i) large |= !(__builtin_fabsf(x[i]) < LARGE);
  for (int64_t i = 0; i < count && large != 0; ++i) {
    if (__builtin_fabsf(x[i]) < LARGE) continue;
    results[i] = quarters == 0 ? __builtin_sinf(x[i]) : __builtin_cosf(x[i]);
  }
}

}  // namespace
}  // namespace xformc
