// The routines of gemm.h for any kind of vector. A file for each kind of machine defines `Vector` and includes this;
// everything here is local to that file, because each is compiled for another machine.
//
// Vector has: width and rows (ints), Float and Int (vectors of that width), Mask; zero, all(float), all(int32), load,
// store, even_pairs and odd_pairs (the first or second of two numbers in bfloat16 for each lane), round_pairs (a float to
// the nearest number of bfloat16; what is no number stays none), load4 (4 bytes to each lane), mask(count), load_some, store_some (lanes beyond are zero, or left alone), add,
// add_int, sub, mul, div, keep(value, mask), max and min (the second if either is not a number), fma(a, b, c) = a * b + c (`fused`: rounded once),
// load_bytes (load4 of weights q + 128, as q + 128 or q, in the form Four), start (of sums with these: the row_offset, or
// 0), four_size (the bytes of four numbers of a packed row), to_fours and all_fours (write these, and read one of them into
// each lane), dot4(sum, weights of load_bytes, signed x of all_fours), dot2 (the same of two signed 16-bit integers each), low_nibbles and high_nibbles (the
// lower and upper halves of all bytes, as bytes), start_nibbles(row_offset), dot_nibbles (dot4 of these, for the 8 steps of a
// group, in a form of its own) and sum_nibbles(of that form, row_offset), the sums from row_offset on, to_float, to_int (half
// to even), abs_bits, max_int,
// sum, sum_int, max_of_int, if_less, power_of_two, to_bytes (saturating), widen_float16, widen_bfloat16.
#include <cmath>
#include <cstring>

#include "gemm.h"

namespace xformc {
namespace {

using Float = Vector::Float;
using Int = Vector::Int;
constexpr int WIDTH = Vector::width;

#define INLINE inline __attribute__((always_inline))
#define SEPARATE __attribute__((noinline))  // so that all registers are for the work of one tile

// Finishes the sums of a tile for two vectors of columns from `first` on; they are `whole` if the tile has all of these
// columns. The fields of the tile are copied, because the compiler would otherwise reload them after each store.
template <bool whole, bool residual>
class Finish {
 public:
  INLINE Finish(const Tile& tile, int first)
      : y_(tile.y + first), residual_(residual ? tile.residual + first : nullptr), stride_(tile.stride),
        least_(Vector::all(tile.relu ? 0.0f : -INFINITY)) {
    for (int h = 0; h < 2; ++h) masks_[h] = Vector::mask(tile.columns - first - h * WIDTH);
    for (int h = 0; h < 2; ++h) bias_[h] = tile.bias == nullptr ? Vector::zero() : some(tile.bias + first, h);
  }

  INLINE Float some(const float* values, int h) const {
    return whole ? Vector::load(values + h * WIDTH) : Vector::load_some(values + h * WIDTH, masks_[h]);
  }

  INLINE void row(int r, int h, Float sum) const {
    const int64_t at = r * stride_;
    sum = Vector::max(least_, Vector::add(sum, bias_[h]));
    if (residual) sum = Vector::add(sum, some(residual_ + at, h));
    if (whole) {
      Vector::store(y_ + at + h * WIDTH, sum);
    } else {
      Vector::store_some(y_ + at + h * WIDTH, sum, masks_[h]);
    }
  }

 private:
  float* y_;
  const float* residual_;
  int64_t stride_;
  Float least_, bias_[2];
  Vector::Mask masks_[2];
};

// Calls work(finish) with the Finish that these columns of the tile need.
template <typename Work>
INLINE void finish(const Tile& tile, int first, const Work& work) {
  const bool whole = tile.columns - first >= 2 * WIDTH, residual = tile.residual != nullptr;
  if (whole && residual) return work(Finish<true, true>(tile, first));
  if (whole) return work(Finish<true, false>(tile, first));
  if (residual) return work(Finish<false, true>(tile, first));
  work(Finish<false, false>(tile, first));
}

// The residual is read last, all at once.
INLINE void fetch_residual(const Tile& tile, int first, int rows) {
  for (int r = 0; r < rows && tile.residual != nullptr; ++r) {
    for (int h = 0; h < 2; ++h) __builtin_prefetch(tile.residual + r * tile.stride + first + h * WIDTH);
  }
}

// Up to FEW_ROWS rows need the next weights faster than each line of them can be asked for: every other one is left to
// the processor, which fetches lines in pairs.
constexpr int FEW_ROWS = 2;

template <int rows>
INLINE void fetch(const char* ahead) {
  __builtin_prefetch(ahead, 0, 2);
  if (rows > FEW_ROWS) __builtin_prefetch(ahead + 64, 0, 2);
}

template <int rows>
INLINE void finish_floats(const Tile& tile, int first, const Float (&sums)[rows][2]) {
  finish(tile, first, [&](const auto& end) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
      end.row(r, 0, sums[r][0]);
      end.row(r, 1, sums[r][1]);
    }
  });
}

// How weights of each precision are read as float32.
struct Single {
  using Stored = float;
  static INLINE Float load(const float* from) { return Vector::load(from); }
};

struct Half {
  using Stored = uint16_t;
  static INLINE Float load(const uint16_t* from) { return Vector::widen_float16(from); }
};

template <typename Weights, int rows>
void float_tile_of(const Tile& tile) {
  for (int first = 0; first < tile.columns; first += 2 * WIDTH) {
    Float sums[rows][2];
    for (int r = 0; r < rows; ++r) sums[r][0] = sums[r][1] = Vector::zero();
    fetch_residual(tile, first, rows);
    const float* x = static_cast<const float*>(tile.x);
    const auto* weights = static_cast<const typename Weights::Stored*>(tile.panel) + first;
    const char* ahead = tile.ahead;
    for (int64_t k = 0; k < tile.steps; ++k) {
      const Float left = Weights::load(weights), right = Weights::load(weights + WIDTH);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const Float value = Vector::all(x[r]);
        sums[r][0] = Vector::fma(value, left, sums[r][0]);
        sums[r][1] = Vector::fma(value, right, sums[r][1]);
      }
      x += rows;
      weights += PANEL;
      if (2 * WIDTH == PANEL || first == 0) fetch<rows>(ahead);
      ahead += tile.ahead_step;
    }
    finish_floats<rows>(tile, first, sums);
  }
}

// Weights and x in bfloat16, whose two products of a step are added one after the other.
template <int rows>
void pair_tile_of(const Tile& tile) {
  for (int first = 0; first < tile.columns; first += 2 * WIDTH) {
    Float sums[rows][2];
    for (int r = 0; r < rows; ++r) sums[r][0] = sums[r][1] = Vector::zero();
    fetch_residual(tile, first, rows);
    const float* x = static_cast<const float*>(tile.x);
    const uint8_t* weights = static_cast<const uint8_t*>(tile.panel) + 4 * first;
    const char* ahead = tile.ahead;
    for (int64_t k = 0; k < tile.steps; ++k) {
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const uint8_t* other = weights + 4 * WIDTH;
        const Float left = i == 0 ? Vector::even_pairs(weights) : Vector::odd_pairs(weights);
        const Float right = i == 0 ? Vector::even_pairs(other) : Vector::odd_pairs(other);
#pragma GCC unroll 16
        for (int r = 0; r < rows; ++r) {
          const Float value = Vector::all(x[2 * r + i]);
          sums[r][0] = Vector::fma(value, left, sums[r][0]);
          sums[r][1] = Vector::fma(value, right, sums[r][1]);
        }
      }
      x += 2 * rows;
      weights += 4 * PANEL;
      if (2 * WIDTH == PANEL || first == 0) fetch<rows>(ahead);
      ahead += tile.ahead_step;
    }
    finish_floats<rows>(tile, first, sums);
  }
}

// Four bytes of x and four of a weight that are multiplied and summed at once.
struct Bytes {
  static constexpr int size = Vector::four_size;
  static INLINE Int start(int32_t row_offset) { return Vector::start(row_offset); }
  static INLINE Vector::Four load(const uint8_t* from) { return Vector::load_bytes(from); }
  static INLINE Vector::Four all(const int8_t* x) { return Vector::all_fours(x); }
  static INLINE Int dot(Int sum, Vector::Four weights, Vector::Four x) { return Vector::dot4(sum, weights, x); }
};

struct Words {
  static constexpr int size = 4;
  static INLINE Int start(int32_t row_offset) { return Vector::all(row_offset); }
  static INLINE Int load(const uint8_t* from) { return Vector::load4(from); }
  static INLINE Int all(const int8_t* x) { return Vector::all(load_four(x)); }
  static INLINE Int dot(Int sum, Int weights, Int x) { return Vector::dot2(sum, weights, x); }
};

template <typename Numbers, int rows>
void integer_tile_of(const Tile& tile) {
  for (int first = 0; first < tile.columns; first += 2 * WIDTH) {
    Int sums[rows][2];
    for (int r = 0; r < rows; ++r) sums[r][0] = sums[r][1] = Numbers::start(tile.row_offset[r]);
    fetch_residual(tile, first, rows);
    const int8_t* x = static_cast<const int8_t*>(tile.x);
    const uint8_t* weights = static_cast<const uint8_t*>(tile.panel) + 4 * first;
    const char* ahead = tile.ahead;
    for (int64_t k = 0; k < tile.steps; ++k) {
      const auto left = Numbers::load(weights), right = Numbers::load(weights + 4 * WIDTH);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const auto value = Numbers::all(x + Numbers::size * r);
        sums[r][0] = Numbers::dot(sums[r][0], left, value);
        sums[r][1] = Numbers::dot(sums[r][1], right, value);
      }
      x += Numbers::size * rows;
      weights += 4 * PANEL;
      if (2 * WIDTH == PANEL || first == 0) fetch<rows>(ahead);
      ahead += tile.ahead_step;
    }
    finish(tile, first, [&, row_scale = tile.row_scale](const auto& end) __attribute__((always_inline)) {
      const Float scale[2] = {end.some(tile.scale + first, 0), end.some(tile.scale + first, 1)};
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const Float scale_of_row = Vector::all(row_scale[r]);
        for (int h = 0; h < 2; ++h) {
          end.row(r, h, Vector::mul(Vector::to_float(sums[r][h]), Vector::mul(scale_of_row, scale[h])));
        }
      }
    });
  }
}

// The weights of two steps, in the halves of the same bytes.
struct Nibbles {
  static constexpr int size = 4 * PANEL;
  static INLINE Int load(const uint8_t* from, int step) {
    const Int both = Vector::load4(from);
    return step == 0 ? Vector::low_nibbles(both) : Vector::high_nibbles(both);
  }
};

// The same, each in bytes of its own.
struct WideNibbles {
  static constexpr int size = 8 * PANEL;
  static INLINE Int load(const uint8_t* from, int step) { return Vector::load4(from + step * 4 * PANEL); }
};

// The integers of a group are summed, then scaled and added.
template <typename Weights, int rows>
void int4_tile_of(const Tile& tile) {
  for (int first = 0; first < tile.columns; first += 2 * WIDTH) {
    Float totals[rows][2];
    for (int r = 0; r < rows; ++r) totals[r][0] = totals[r][1] = Vector::zero();
    fetch_residual(tile, first, rows);
    const int8_t* x = static_cast<const int8_t*>(tile.x);
    const uint8_t* weights = static_cast<const uint8_t*>(tile.panel) + 4 * first;
    const float* scale = tile.scale + first;
    const int32_t* offset = tile.row_offset;
    const char* ahead = tile.ahead;
    for (int64_t group = 0; group < tile.steps / (GROUP / 4); ++group) {
      Int sums[rows][2];
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) sums[r][0] = sums[r][1] = Vector::start_nibbles(offset[r]);
      for (int pair = 0; pair < GROUP / 8; ++pair) {
#pragma GCC unroll 2
        for (int step = 0; step < 2; ++step) {
          const Int left = Weights::load(weights, step), right = Weights::load(weights + 4 * WIDTH, step);
#pragma GCC unroll 16
          for (int r = 0; r < rows; ++r) {
            const Int value = Vector::all(load_four(x + 4 * r));
            sums[r][0] = Vector::dot_nibbles(sums[r][0], left, value);
            sums[r][1] = Vector::dot_nibbles(sums[r][1], right, value);
          }
          x += 4 * rows;
        }
        weights += Weights::size;
        if (2 * WIDTH == PANEL || first == 0) fetch<rows>(ahead);
        ahead += 2 * tile.ahead_step;
      }
      const Float scales[2] = {Vector::load(scale), Vector::load(scale + WIDTH)};
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        for (int h = 0; h < 2; ++h) {
          const Int sum = Vector::sum_nibbles(sums[r][h], offset[r]);
          totals[r][h] = Vector::fma(Vector::to_float(sum), scales[h], totals[r][h]);
        }
      }
      scale += PANEL;
      offset += rows;
    }
    finish(tile, first, [&, row_scale = tile.row_scale](const auto& end) __attribute__((always_inline)) {
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const Float scale_of_row = Vector::all(row_scale[r]);
        for (int h = 0; h < 2; ++h) end.row(r, h, Vector::mul(totals[r][h], scale_of_row));
      }
    });
  }
}

template <int number>
struct Count {
  static constexpr int value = number;
};

// Calls work(Count<rows>) with a number of rows that is known only at run time.
template <int most = Vector::rows, typename Work>
INLINE void with_count(int rows, const Work& work) {
  if constexpr (most > 1) {
    if (rows < most) return with_count<most - 1>(rows, work);
  }
  work(Count<most>());
}

template <typename Weights>
SEPARATE void float_tile(const Tile& tile) {
  with_count(tile.rows, [&](auto count) { float_tile_of<Weights, decltype(count)::value>(tile); });
}

SEPARATE void pair_tile(const Tile& tile) {
  with_count(tile.rows, [&](auto count) { pair_tile_of<decltype(count)::value>(tile); });
}

template <typename Numbers>
SEPARATE void integer_tile(const Tile& tile) {
  with_count(tile.rows, [&](auto count) { integer_tile_of<Numbers, decltype(count)::value>(tile); });
}

template <typename Weights>
SEPARATE void int4_tile(const Tile& tile) {
  with_count(tile.rows, [&](auto count) { int4_tile_of<Weights, decltype(count)::value>(tile); });
}

template <void (*multiply)(const Tile& tile)>
void each(const Tile* tiles, int count) {
  for (int i = 0; i < count; ++i) multiply(tiles[i]);
}

typedef float Four __attribute__((vector_size(16), aligned(4)));

// Four numbers of each of four rows, the numbers of one place side by side: a transposition.
INLINE void pack_four(const float* row, int64_t depth, float* packed, int rows) {
  Four in[4];
  for (int r = 0; r < 4; ++r) std::memcpy(&in[r], row + r * depth, sizeof(Four));
  const Four a = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
  const Four b = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
  const Four c = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
  const Four d = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
  const Four out[4] = {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
                       __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
  for (int k = 0; k < 4; ++k) std::memcpy(packed + k * rows, &out[k], sizeof(Four));
}

void pack_float(const float* x, int rows, int64_t depth, float* packed) {
  if (rows == 1) {
    std::memcpy(packed, x, depth * sizeof(float));
    return;
  }
  const int64_t whole = rows < 4 ? 0 : depth / 4 * 4;
  for (int r = 0; r < rows && whole > 0; r += 4) {
    const int first = r < rows - 4 ? r : rows - 4;  // the last four rows may be some of those before
    for (int64_t k = 0; k < whole; k += 4) {
      pack_four(x + first * depth + k, depth, packed + k * rows + first, rows);
    }
  }
  for (int64_t k = whole; k < depth; ++k) {
    for (int r = 0; r < rows; ++r) packed[k * rows + r] = x[r * depth + k];
  }
}

// The lanes of a row of `count` floats that begin at i.
INLINE Vector::Mask lanes(int64_t count, int64_t i) {
  return Vector::mask(count - i < WIDTH ? static_cast<int>(count - i) : WIDTH);
}

// As floats [steps][rows][2], with a zero after an odd depth.
void pack_pairs(const float* x, int rows, int64_t depth, void* packed) {
  auto* to = static_cast<float*>(packed);
  for (int r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < depth; k += WIDTH) {
      float rounded[WIDTH];
      Vector::store(rounded, Vector::round_pairs(Vector::load_some(x + r * depth + k, lanes(depth, k))));
      for (int i = 0; i < WIDTH && k + i < depth; i += 2) {
        std::memcpy(to + ((k + i) / 2 * rows + r) * 2, rounded + i, 2 * sizeof(float));
      }
    }
  }
}

// The largest size of a number in a row; not a number if one of them is not, as that has the largest bits.
INLINE float largest(const float* row, int64_t depth) {
  Int most = Vector::all(int32_t{0});
  int64_t k = 0;
  for (; k + WIDTH <= depth; k += WIDTH) most = Vector::max_int(most, Vector::abs_bits(Vector::load(row + k)));
  if (k < depth) most = Vector::max_int(most, Vector::abs_bits(Vector::load_some(row + k, lanes(depth, k))));
  const int32_t bits = Vector::max_of_int(most);
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// Quotients by a scale, rounded to the nearest. A division takes some ten times as long as a product.
struct Divided {
  explicit Divided(float scale) : divisor(Vector::all(scale)) {}
  INLINE Float of(Float values) const { return Vector::div(values, divisor); }

  Float divisor;
};

// The same by products, which Markstein has shown to be correctly rounded: with the nearest reciprocal y of d, a quotient q
// near x / d, and the exact remainder r = x - q d, the sum q + r y is (IBM Journal of Research and Development 34, 1990).
struct Multiplied {
  explicit Multiplied(float scale) : inverse(Vector::all(1 / scale)), negative(Vector::all(-scale)) {}
  INLINE Float of(Float values) const {
    const Float quotient = Vector::mul(values, inverse);
    return Vector::fma(Vector::fma(quotient, negative, values), inverse, quotient);
  }

  // The remainder of quotients of at least 1/2, below which all are rounded to 0, is exact: nothing is too small or too large.
  static bool serves(float scale) { return Vector::fused && scale > 0x1p-90f && scale < 0x1p90f; }

  Float inverse, negative;
};

// values / scale as bytes, four and four, each four of `size` bytes and of a row out of `rows`; `groups` is how many.
// Returns them as integers.
template <int size, typename Quotient>
INLINE Int pack_bytes(Float values, const Quotient& quotient, int groups, int8_t* packed, int rows) {
  const Int rounded = Vector::to_int(quotient.of(values));
  int8_t bytes[WIDTH / 4 * size];
  if constexpr (size == 4) {
    Vector::to_bytes(rounded, bytes);
  } else {
    Vector::to_fours(rounded, bytes);
  }
#pragma GCC unroll 4
  for (int i = 0; i < groups; ++i) std::memcpy(packed + i * rows * size, bytes + i * size, size);
  return rounded;
}

// pack_bytes for the numbers begin .. end - 1 of a row, a multiple of four of them, with zeros from `depth` on. The sums.
template <int size, typename Quotient>
INLINE Int pack_range(const float* row, int64_t depth, int64_t begin, int64_t end, const Quotient& quotient,
                      int8_t* packed, int rows) {
  const int64_t whole = end < depth ? end : depth;
  Int sum = Vector::all(int32_t{0});
  int64_t k = begin;
  for (; k + WIDTH <= whole; k += WIDTH) {
    int8_t* to = packed + k / 4 * rows * size;
    sum = Vector::add_int(sum, pack_bytes<size>(Vector::load(row + k), quotient, WIDTH / 4, to, rows));
  }
  for (; k < end; k += WIDTH) {
    const Float values = k < depth ? Vector::load_some(row + k, lanes(depth, k)) : Vector::zero();
    const int groups = static_cast<int>(end - k < WIDTH ? end - k : WIDTH) / 4;
    sum = Vector::add_int(sum, pack_bytes<size>(values, quotient, groups, packed + k / 4 * rows * size, rows));
  }
  return sum;
}

// The row_offset of a row whose bytes have this sum, in parts.
INLINE int32_t offset_of(Int sum) {
  return static_cast<int32_t>(0u - 128u * static_cast<uint32_t>(Vector::sum_int(sum)));
}

// Calls pack(quotient) with quotients by a scale, which are 0 if the scale is.
template <typename Pack>
INLINE void by_quotients(float scale, const Pack& pack) {
  if (Multiplied::serves(scale)) {
    pack(Multiplied(scale));
  } else {
    pack(Divided(scale == 0 ? INFINITY : scale));
  }
}

// Sets the scale that maps the largest number of a row to 127, and calls pack(quotient) with quotients by it.
template <typename Pack>
INLINE void by_scale(const float* row, int64_t depth, float& scale, const Pack& pack) {
  scale = largest(row, depth) / 127;
  by_quotients(scale, pack);
}

void pack_int8(const float* x, int rows, int64_t depth, int8_t* packed, float* row_scale, int32_t* row_offset) {
  for (int r = 0; r < rows; ++r) {
    const float* row = x + r * depth;
    by_scale(row, depth, row_scale[r], [&](const auto& quotient) {
      int8_t* to = packed + Bytes::size * r;
      row_offset[r] = offset_of(pack_range<Bytes::size>(row, depth, 0, (depth + 3) / 4 * 4, quotient, to, rows));
    });
  }
}

void pack_int4(const float* x, int rows, int64_t depth, int8_t* packed, float* row_scale, int32_t* row_offset) {
  for (int r = 0; r < rows; ++r) {
    const float* row = x + r * depth;
    by_scale(row, depth, row_scale[r], [&](const auto& quotient) {
      for (int64_t begin = 0; begin < depth; begin += GROUP) {
        const Int sum = pack_range<4>(row, depth, begin, begin + GROUP, quotient, packed + 4 * r, rows);
        row_offset[begin / GROUP * rows + r] =
            static_cast<int32_t>(0u - 8u * static_cast<uint32_t>(Vector::sum_int(sum)));
      }
    });
  }
}

void widen_float16(const uint16_t* values, int64_t count, float* wide) {
  for (int64_t i = 0; i < count; i += WIDTH) Vector::store(wide + i, Vector::widen_float16(values + i));
}

void widen_bfloat16(const uint16_t* values, int64_t count, float* wide) {
  for (int64_t i = 0; i < count; i += WIDTH) Vector::store(wide + i, Vector::widen_bfloat16(values + i));
}

INLINE Float polynomial(Float, Float sum) { return sum; }

// The polynomial in x with the highest coefficient `sum`, followed by the others.
template <typename... Rest>
INLINE Float polynomial(Float x, Float sum, float next, Rest... rest) {
  return polynomial(x, Vector::fma(sum, x, Vector::all(next)), rest...);
}

void widen_int4(const uint8_t* nibbles, int64_t count, uint8_t* wide) {
  for (const uint8_t* end = nibbles + count; nibbles < end; nibbles += 4 * PANEL, wide += 8 * PANEL) {
    for (int i = 0; i < 4 * PANEL; ++i) {
      wide[i] = nibbles[i] & 15;
      wide[4 * PANEL + i] = nibbles[i] >> 4;
    }
  }
}

// Plain loops, which the compiler makes vectors of.
void widen_screened(const int16_t* words, const int16_t* rest, int64_t rows, int64_t depth, const float* scale,
                    const float* unit, float* wide) {
  constexpr int64_t TOGETHER = 16;        // pairs of columns, whose rests are turned into the order of the words
  int32_t turned[TOGETHER * PANEL] = {};  // each a pair
  const auto even = [](int32_t pair) { return static_cast<float>(static_cast<int16_t>(pair)); };
  const auto odd = [](int32_t pair) { return static_cast<float>(pair >> 16); };
  for (int64_t first = 0; first < depth; first += 2 * TOGETHER) {
    const int64_t count = depth - first < 2 * TOGETHER ? depth - first : 2 * TOGETHER;
    const bool whole = rows == PANEL && count % 8 == 0 && depth % 2 == 0;
    // The same parts of the next panel, which is read next, if there is one.
    for (int64_t row = 0; row < rows; ++row) __builtin_prefetch(rest + (PANEL + row) * depth + first, 0, 2);
    for (int64_t row = 0; whole && row < PANEL; row += 4) {
      const auto* from = reinterpret_cast<const float*>(rest + row * depth + first);  // pairs as bits
      auto* to = reinterpret_cast<float*>(turned + row);
      for (int64_t i = 0; i < count / 2; i += 4) pack_four(from + i, depth / 2, to + i * PANEL, PANEL);
    }
    for (int64_t row = 0; !whole && row < rows; ++row) {
      const int16_t* from = rest + row * depth + first;
      for (int64_t i = 0; i < count / 2; ++i) std::memcpy(&turned[i * PANEL + row], from + 2 * i, sizeof(int32_t));
      if (count % 2 != 0) turned[count / 2 * PANEL + row] = static_cast<uint16_t>(from[count - 1]);
    }
    for (int64_t i = 0; 2 * i < count; ++i, words += 2 * PANEL, wide += 2 * PANEL) {
      const int32_t* rests = turned + i * PANEL;
      const int16_t* ahead = words + (depth + 1) / 2 * 2 * PANEL;
      __builtin_prefetch(ahead, 0, 2);
      __builtin_prefetch(ahead + PANEL, 0, 2);
      for (int row = 0; row < PANEL; ++row) {
        int32_t pair;
        std::memcpy(&pair, words + 2 * row, sizeof pair);
        wide[row] = even(pair) * scale[row] + even(rests[row]) * unit[row];
        wide[PANEL + row] = odd(pair) * scale[row] + odd(rests[row]) * unit[row];
      }
    }
  }
}

// e^x: x = n ln 2 + r with ln 2 in two parts (Cody and Waite), and the Taylor series of e^r for |r| <= ln(2) / 2.
INLINE Float exponential(Float x) {
  x = Vector::max(Vector::all(-87.0f), Vector::min(Vector::all(88.0f), x));
  const Int n = Vector::to_int(Vector::mul(x, Vector::all(1.44269504f)));
  const Float whole = Vector::to_float(n);
  const Float r = Vector::fma(whole, Vector::all(2.12194440e-4f), Vector::fma(whole, Vector::all(-0.693359375f), x));
  const Float series =
      polynomial(r, Vector::all(1.0f / 5040), 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f);
  return Vector::mul(series, Vector::power_of_two(n));
}

INLINE Float sigmoid(Float x) {
  const Float one = Vector::all(1.0f);
  return Vector::div(one, Vector::add(one, exponential(Vector::sub(Vector::zero(), x))));
}

// tanh x: x + x^3 p(x^2) where |x| < 0.625 (p is a least-maximum fit, within 4e-9), else 1 - 2 / (e^2x + 1).
INLINE Float hyperbolic_tangent(Float x) {
  const Float square = Vector::mul(x, x);
  const Float p = polynomial(square, Vector::all(-5.71703656e-3f), 2.06505790e-2f, -5.37434953e-2f, 1.33314912e-1f,
                             -3.33332839e-1f);
  const Float small = Vector::fma(Vector::mul(x, square), p, x);
  const Float one = Vector::all(1.0f);
  const Float power = exponential(Vector::add(x, x));
  const Float large = Vector::sub(one, Vector::div(Vector::all(2.0f), Vector::add(power, one)));
  return Vector::if_less(square, Vector::all(0.625f * 0.625f), small, large);
}

// The normal distribution's Phi(x) = (1 + erf(x / sqrt 2)) / 2. With z = |x| / sqrt 2 and t = 1 / (1 + z / 2),
// 1 - erf z = t p(t) e^-z^2; p is a least-maximum fit, within 1.2e-8.
INLINE Float normal_distribution(Float x) {
  const Float one = Vector::all(1.0f), half = Vector::all(0.5f);
  const Float z = Vector::mul(Vector::max(Vector::sub(Vector::zero(), x), x), Vector::all(0.707106781f));
  const Float t = Vector::div(one, Vector::fma(z, half, one));
  const Float p = polynomial(t, Vector::all(5.88014983e-2f), -2.18237231e-1f, 1.22177005e-1f, 3.07681757e-1f,
                             1.30843147e-1f, 3.21698801e-1f, 2.77035034e-1f);
  const Float power = exponential(Vector::mul(Vector::sub(Vector::zero(), z), z));
  const Float tail = Vector::mul(half, Vector::mul(Vector::mul(t, p), power));
  return Vector::if_less(x, Vector::zero(), tail, Vector::sub(one, tail));
}

struct Silu {
  INLINE Float operator()(Float x) const { return Vector::mul(x, sigmoid(x)); }
};

struct Gelu {
  INLINE Float operator()(Float x) const { return Vector::mul(x, normal_distribution(x)); }
};

// x (1 + tanh u) / 2 = x sigmoid(2u).
struct GeluTanh {
  INLINE Float operator()(Float x) const {
    const Float cube = Vector::mul(Vector::mul(x, x), x);
    const Float twice_u = Vector::mul(Vector::fma(cube, Vector::all(0.044715f), x), Vector::all(2 * 0.797884561f));
    return Vector::mul(x, sigmoid(twice_u));
  }
};

struct Tanh {
  INLINE Float operator()(Float x) const { return hyperbolic_tangent(x); }
};

struct Sigmoid {
  INLINE Float operator()(Float x) const { return sigmoid(x); }
};

struct Relu {
  INLINE Float operator()(Float x) const { return Vector::max(Vector::zero(), x); }
};

template <typename Function>
void apply(Function function, float* values, int64_t count) {
  for (int64_t i = 0; i < count; i += WIDTH) Vector::store(values + i, function(Vector::load(values + i)));
}

void activate(Activation activation, float* values, int64_t count) {
  switch (activation) {
    case Activation::none: return;
    case Activation::relu: return apply(Relu(), values, count);
    case Activation::gelu: return apply(Gelu(), values, count);
    case Activation::gelu_tanh: return apply(GeluTanh(), values, count);
    case Activation::silu: return apply(Silu(), values, count);
    case Activation::tanh: return apply(Tanh(), values, count);
    case Activation::sigmoid: return apply(Sigmoid(), values, count);
  }
}

struct Same {
  INLINE Float operator()(Float x) const { return x; }
};

// (x - shift)^2
struct SquaredDistance {
  Float shift;

  INLINE Float operator()(Float x) const {
    const Float distance = Vector::sub(x, shift);
    return Vector::mul(distance, distance);
  }
};

// The sum of term(x) over a row.
template <typename Term>
INLINE float total(const float* row, int64_t count, Term term) {
  Float sums[4] = {Vector::zero(), Vector::zero(), Vector::zero(), Vector::zero()};
  int64_t i = 0;
  for (; i + 4 * WIDTH <= count; i += 4 * WIDTH) {
    for (int j = 0; j < 4; ++j) sums[j] = Vector::add(sums[j], term(Vector::load(row + i + j * WIDTH)));
  }
  for (; i < count; i += WIDTH) {
    const Vector::Mask mask = lanes(count, i);
    sums[0] = Vector::add(sums[0], Vector::keep(term(Vector::load_some(row + i, mask)), mask));
  }
  return Vector::sum(Vector::add(Vector::add(sums[0], sums[1]), Vector::add(sums[2], sums[3])));
}

// (row - shift) * factor * gain + offset, if there is an offset, for the lanes of a mask.
INLINE void rescale_some(float* row, Float shift, Float factor, const float* gain, const float* offset,
                         Vector::Mask mask) {
  Float value = Vector::sub(Vector::load_some(row, mask), shift);
  value = Vector::mul(Vector::mul(value, factor), Vector::load_some(gain, mask));
  if (offset != nullptr) value = Vector::add(value, Vector::load_some(offset, mask));
  Vector::store_some(row, value, mask);
}

INLINE void rescale(float* row, int64_t count, float shift, float factor, const float* gain, const float* offset) {
  const Float shifts = Vector::all(shift), factors = Vector::all(factor);
  const Vector::Mask whole = Vector::mask(WIDTH);
  int64_t i = 0;
  for (; i + WIDTH <= count; i += WIDTH) {
    rescale_some(row + i, shifts, factors, gain + i, offset == nullptr ? nullptr : offset + i, whole);
  }
  if (i < count) {
    rescale_some(row + i, shifts, factors, gain + i, offset == nullptr ? nullptr : offset + i, lanes(count, i));
  }
}

void layer_norm(float* row, int64_t count, const float* gain, const float* offset, float epsilon) {
  const float mean = total(row, count, Same{}) / count;
  const float variance = total(row, count, SquaredDistance{Vector::all(mean)}) / count;
  rescale(row, count, mean, 1.0f / std::sqrt(variance + epsilon), gain, offset);
}

void rms_norm(float* row, int64_t count, const float* gain, float epsilon) {
  const float square = total(row, count, SquaredDistance{Vector::zero()}) / count;
  rescale(row, count, 0.0f, 1.0f / std::sqrt(square + epsilon), gain, nullptr);
}

// x / factor, squared.
struct ScaledSquare {
  Float factor;

  INLINE Float operator()(Float x) const {
    const Float scaled = Vector::div(x, factor);
    return Vector::mul(scaled, scaled);
  }
};

// The scale keeps sums of products in 32 bits: by Cauchy and Schwarz each is at most the product of the two norms.
void pack_int16(const float* x, int rows, int64_t depth, int16_t* packed, float* row_scale) {
  for (int r = 0; r < rows; ++r) {
    const float* row = x + r * depth;
    const float most = largest(row, depth);
    const float norm = most == 0 ? 0 : most * std::sqrt(total(row, depth, ScaledSquare{Vector::all(most)}));
    row_scale[r] = std::fmax(most / INT16_MOST, norm / INT16_NORM);
    by_quotients(row_scale[r], [&](const auto& quotient) {
      for (int64_t k = 0; k < depth; k += WIDTH) {
        const Int rounded = Vector::to_int(quotient.of(Vector::load_some(row + k, lanes(depth, k))));
        int32_t values[WIDTH];
        std::memcpy(values, &rounded, sizeof values);
        for (int i = 0; i < WIDTH && k + i < depth; i += 2) {
          int16_t* pair = packed + ((k + i) / 2 * rows + r) * 2;
          pair[0] = static_cast<int16_t>(values[i]);
          pair[1] = static_cast<int16_t>(values[i + 1]);
        }
      }
    });
  }
}

// a . b, summed in an order that depends only on the count.
float dot(const float* a, const float* b, int64_t count) {
  Float sums[4] = {Vector::zero(), Vector::zero(), Vector::zero(), Vector::zero()};
  int64_t i = 0;
  for (; i + 4 * WIDTH <= count; i += 4 * WIDTH) {
    for (int j = 0; j < 4; ++j) {
      sums[j] = Vector::fma(Vector::load(a + i + j * WIDTH), Vector::load(b + i + j * WIDTH), sums[j]);
    }
  }
  for (; i < count; i += WIDTH) {
    const Vector::Mask mask = lanes(count, i);
    sums[0] = Vector::fma(Vector::load_some(a + i, mask), Vector::load_some(b + i, mask), sums[0]);
  }
  return Vector::sum(Vector::add(Vector::add(sums[0], sums[1]), Vector::add(sums[2], sums[3])));
}

constexpr Routines routines_of(const char* instructions) {
  return {
      instructions,
      WIDTH,
      Vector::rows,
      Vector::rows,
      1,
      1,
      Bytes::size,
      2 * sizeof(float),
      each<float_tile<Single>>,
      each<float_tile<Half>>,
      each<pair_tile>,
      each<integer_tile<Bytes>>,
      each<int4_tile<Nibbles>>,
      each<int4_tile<WideNibbles>>,
      each<integer_tile<Words>>,
      pack_float,
      pack_pairs,
      pack_int8,
      pack_int4,
      pack_int16,
      widen_float16,
      widen_bfloat16,
      widen_int4,
      widen_screened,
      activate,
      layer_norm,
      rms_norm,
      dot,
  };
}

}  // namespace
}  // namespace xformc
