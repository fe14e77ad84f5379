// Attention for any kind of vector. A file for each kind of machine defines `Vector` and includes this one; everything
// here is local to that file, because each is compiled for another machine.
//
// Vector has: width (int); columns (int): how many vectors of a value are added up at once; Float, a vector of that
// width; all, load, store, load_some(from, count, other) and store_some of the first `count` lanes, where the others
// are `other`, or left alone; add, sub, mul, fma(a, b, c) = a * b + c, max (the second if either is not a number); sum,
// sum_double, highest of the lanes; sums(vectors), the sum of each of `width` vectors; at_least, a bit for each lane;
// compress, the lanes of some bits and their places, side by side; shift(a, n) = a * 2^n, where n is in the lowest bits
// of the pattern of bits; keep, which has a vector in a register where it may be read from memory again. Float16, as uint16_t, and int8 are loaded as the floats that they stand for.
#include "attend.h"
#include "gemm.h"

namespace xformc {
namespace {

using Float = Vector::Float;
constexpr int WIDTH = Vector::width;

#define INLINE inline __attribute__((always_inline))

// e^x for x from -87 to 0; e^-87 for less. The relative error is 2e-7 at most down to -20, and 4e-7 further down.
// 2^n e^f with |f| <= log(2) / 2, and for e^f the polynomial 1 + .. with the smallest relative error.
INLINE Float exp_of(Float x) {
  const Float whole = Vector::all(12582912.0f);  // 1.5 * 2^23: what is added to it is rounded to whole numbers
  x = Vector::max(Vector::all(-87.0f), x);
  const Float shifted = Vector::fma(x, Vector::all(1.44269504f), whole), n = Vector::sub(shifted, whole);
  const Float f = Vector::fma(n, Vector::all(-0.69314718f), x);
  constexpr float factors[] = {0.04189793020486832f, 0.1666763573884964f, 0.4999915063381195f, 0.9999997019767761f,
                               1.0f};
  Float y = Vector::all(0.008290315046906471f);
  for (const float factor : factors) y = Vector::fma(y, f, Vector::all(factor));
  return Vector::shift(y, shifted);
}

// The sums of the products of each query with each of its keys; lane i * KEYS + j has query i's with its key j. With
// `shared` the keys of the first query are those of all.
template <int QUERIES, int KEYS, bool shared, typename Stored>
INLINE Float products(const float* const* queries, const Stored* const (*keys)[KEYS], int64_t depth) {
  Float parts[WIDTH];
  for (int i = 0; i < WIDTH; ++i) parts[i] = Vector::all(0);
  const auto add = [&](int64_t d, const auto& load) __attribute__((always_inline)) {
    Float query[QUERIES];
    for (int i = 0; i < QUERIES; ++i) query[i] = load(queries[i] + d);
#pragma GCC unroll 16
    for (int j = 0; j < KEYS; ++j) {
      const Float key = shared ? load(keys[0][j] + d) : Vector::all(0);
#pragma GCC unroll 4
      for (int i = 0; i < QUERIES; ++i) {
        const int place = i * KEYS + j;
        parts[place] = Vector::fma(query[i], shared ? key : load(keys[i][j] + d), parts[place]);
      }
    }
  };
  int64_t d = 0;
  for (; d + WIDTH <= depth; d += WIDTH) add(d, [](const auto* from) { return Vector::load(from); });
  if (const int left = static_cast<int>(depth - d); left > 0) {
    add(d, [left](const auto* from) { return Vector::load_some(from, left, 0); });
  }
  return Vector::sums(parts);
}

// The scores of queries first .. first + QUERIES - 1 to the rows j .. j + count - 1 that each of them sees, or with
// `shared` all of them. What comes after those scores, up to KEYS, is overwritten too.
template <int QUERIES, int KEYS, bool shared, typename Stored>
INLINE void score_rows(const Memory<Stored>& memory, const Group& group, int first, float* const* scores, int64_t j,
                       int64_t count) {
  const Stored* keys[QUERIES][KEYS];
  for (int i = 0; i < (shared ? 1 : QUERIES); ++i) {
    const int64_t* rows = group.rows[first + i] + j;
    for (int k = 0; k < KEYS; ++k) keys[i][k] = memory.key + rows[k < count ? k : count - 1] * memory.key_step;
  }
  float lanes[WIDTH];
  const Float sums = products<QUERIES, KEYS, shared>(group.query + first, keys, memory.key_depth);
  Float scaled = Vector::mul(Vector::all(memory.scale), sums);
  if constexpr (std::is_same_v<Stored, int8_t>) {
    float scales[WIDTH] = {};
    for (int i = 0; i < QUERIES; ++i) {
      for (int k = 0; k < KEYS; ++k) scales[i * KEYS + k] = scale_of(keys[shared ? 0 : i][k]);
    }
    scaled = Vector::mul(scaled, Vector::load(scales));
  }
  Vector::store(lanes, scaled);
  for (int i = 0; i < QUERIES; ++i) __builtin_memcpy(scores[first + i] + j, lanes + i * KEYS, KEYS * sizeof(float));
}

// Prefetches the rows ahead, a few with each of the `total` rows that are computed.
template <typename Stored>
struct Ahead {
  const Memory<Stored>& memory;
  int64_t share, due, fetched;  // in 1/256 of a row; the last in rows

  INLINE Ahead(const Memory<Stored>& memory_, int64_t total)
      : memory(memory_), share((256 * memory.ahead_count + total - 1) / total), due(0), fetched(0) {}

  INLINE void computed(int64_t rows) {
    due += rows * share;
    for (; 256 * fetched < due && fetched < memory.ahead_count; ++fetched) {
      const int64_t row = memory.ahead[fetched];
      fetch(memory.key + row * memory.key_step + memory.key_depth + BEFORE<Stored>, memory.key_depth);
      fetch(memory.value + row * memory.value_step + memory.value_depth + BEFORE<Stored>, memory.value_depth);
    }
  }
};

// The scores of one query to its rows j .. end - 1.
template <typename Stored>
INLINE void score_rest(const Memory<Stored>& memory, const Group& group, int i, float* const* scores, int64_t j,
                       int64_t end, Ahead<Stored>& ahead) {
  constexpr int QUARTER = WIDTH / 4;
  for (; j < end; j += WIDTH) {
    const int64_t count = end - j;
    if (count <= QUARTER) {
      score_rows<1, QUARTER, true>(memory, group, i, scores, j, count);
    } else if (count <= 2 * QUARTER) {
      score_rows<1, 2 * QUARTER, true>(memory, group, i, scores, j, count);
    } else {
      score_rows<1, WIDTH, true>(memory, group, i, scores, j, count);
    }
    ahead.computed(WIDTH);
  }
}

// Replaces scores by weights exp(score - highest) and returns their sum; elements after `count` add nothing.
INLINE float to_weights(float* scores, int64_t count) {
  const int left = static_cast<int>(count % WIDTH);
  const float never = -__builtin_inff();
  Float highest = Vector::all(never), total = Vector::all(0);
  int64_t j = 0;
  for (; j + WIDTH <= count; j += WIDTH) highest = Vector::max(highest, Vector::load(scores + j));
  if (left > 0) highest = Vector::max(highest, Vector::load_some(scores + j, left, never));
  highest = Vector::all(Vector::highest(highest));
  for (j = 0; j + WIDTH <= count; j += WIDTH) {
    const Float weights = exp_of(Vector::sub(Vector::load(scores + j), highest));
    total = Vector::add(total, weights);
    Vector::store(scores + j, weights);
  }
  if (left > 0) {
    const Float weights = exp_of(Vector::sub(Vector::load_some(scores + j, left, never), highest));
    total = Vector::add(total, weights);
    Vector::store(scores + j, weights);
  }
  return Vector::sum(total);
}

// The minimum number of rows that each of some queries sees.
INLINE int64_t common_count(const Group& group, int first, int queries) {
  int64_t common = group.count[first];
  for (int i = 1; i < queries; ++i) common = group.count[first + i] < common ? group.count[first + i] : common;
  return common;
}

// The `last` first lanes of the last vector of the columns, else all.
template <int COLUMNS, typename Stored>
INLINE Float column(const Stored* row, int c, int last) {
  return c + 1 < COLUMNS || last == WIDTH ? Vector::load(row + c * WIDTH) : Vector::load_some(row + c * WIDTH, last, 0);
}

// COLUMNS vectors of the values, from column `first` on, for all QUERIES queries; the last vector has `last` lanes.
template <int QUERIES, int COLUMNS, typename Stored>
void mix_columns(const Memory<Stored>& memory, const Group& group, const float* const* weights, const float* factors,
                 int64_t first, int last) {
  Float sums[QUERIES][COLUMNS];
  for (int i = 0; i < QUERIES; ++i) {
    for (int c = 0; c < COLUMNS; ++c) sums[i][c] = Vector::all(0);
  }
  const int64_t common = common_count(group, 0, QUERIES), shared = group.shared < common ? group.shared : common;
  const Stored* values = memory.value + first;
  for (int64_t j = 0; j < shared; ++j) {
    const Stored* row = values + group.rows[0][j] * memory.value_step;
    Float parts[COLUMNS];
    for (int c = 0; c < COLUMNS; ++c) parts[c] = column<COLUMNS>(row, c, last);
#pragma GCC unroll 6
    for (int i = 0; i < QUERIES; ++i) {
      const Float weight = Vector::all(weights[i][j]);
      for (int c = 0; c < COLUMNS; ++c) sums[i][c] = Vector::fma(weight, parts[c], sums[i][c]);
    }
  }
  const auto add = [&](int i, int64_t j) __attribute__((always_inline)) {
    const Stored* row = values + group.rows[i][j] * memory.value_step;
    const Float weight = Vector::all(weights[i][j]);
    for (int c = 0; c < COLUMNS; ++c) sums[i][c] = Vector::fma(weight, column<COLUMNS>(row, c, last), sums[i][c]);
  };
  for (int64_t j = shared; j < common; ++j) {
#pragma GCC unroll 6
    for (int i = 0; i < QUERIES; ++i) add(i, j);
  }
#pragma GCC unroll 6
  for (int i = 0; i < QUERIES; ++i) {
    for (int64_t j = common; j < group.count[i]; ++j) add(i, j);
    const Float factor = Vector::all(factors[i]);
    for (int c = 0; c < COLUMNS; ++c) {
      float* out = group.out[i] + first + c * WIDTH;
      const Float mixed = Vector::mul(factor, sums[i][c]);
      if (c + 1 < COLUMNS || last == WIDTH) {
        Vector::store(out, mixed);
      } else {
        Vector::store_some(out, mixed, last);
      }
    }
  }
}

template <int QUERIES, typename Stored>
void mix(const Memory<Stored>& memory, const Group& group, const float* const* weights, const float* factors) {
  if (group.size < QUERIES) {
    if constexpr (QUERIES > 1) mix<QUERIES - 1>(memory, group, weights, factors);
    return;
  }
  constexpr int64_t STEP = Vector::columns * WIDTH;
  int64_t first = 0;
  for (; first + STEP <= memory.value_depth; first += STEP) {
    mix_columns<QUERIES, Vector::columns>(memory, group, weights, factors, first, WIDTH);
  }
  for (; first < memory.value_depth; first += WIDTH) {
    const int64_t left = memory.value_depth - first;
    mix_columns<QUERIES, 1>(memory, group, weights, factors, first, left < WIDTH ? static_cast<int>(left) : WIDTH);
  }
}

// The scores of the queries from `first` on, in twos and fours, by the rows of their keys. A key that several queries see
// is read once for them.
template <int QUERIES, typename Stored>
INLINE void score(const Memory<Stored>& memory, const Group& group, int first, float* const* scores) {
  if (group.size - first < QUERIES) {
    if constexpr (QUERIES > 1) score<QUERIES / 2>(memory, group, first, scores);
    return;
  }
  constexpr int KEYS = WIDTH / QUERIES;
  const int64_t common = QUERIES > 1 ? common_count(group, first, QUERIES) : 0;
  const int64_t shared = group.shared < common ? group.shared : common;
  int64_t total = 0;
  for (int i = first; i < group.size; ++i) total += group.count[i];
  Ahead<Stored> ahead(memory, total - (QUERIES - 1) * shared);
  for (int64_t j = 0; j < shared; j += KEYS) {
    score_rows<QUERIES, KEYS, true>(memory, group, first, scores, j, shared - j);
    ahead.computed(KEYS);
  }
  for (int64_t j = shared; j < common; j += KEYS) {
    score_rows<QUERIES, KEYS, false>(memory, group, first, scores, j, common - j);
    ahead.computed(WIDTH);
  }
  for (int i = first; i < first + QUERIES; ++i) score_rest(memory, group, i, scores, common, group.count[i], ahead);
  if constexpr (QUERIES > 1) {
    Memory<Stored> rest = memory;
    rest.ahead_count = 0;
    const bool more = first + QUERIES < Group::MOST && group.size > first + QUERIES;
    if (more) score<QUERIES / 2>(rest, group, first + QUERIES, scores);
  }
}

// How many numbers of each key there are in a panel: for integers also their scale, at the end.
template <typename Stored>
int64_t height_of(const Memory<Stored>& memory) {
  return memory.key_depth + (BEFORE<Stored> > 0);
}

template <typename Stored>
void pack(const Memory<Stored>& memory, const int64_t* rows, int64_t count, float* panels) {
  const int64_t depth = memory.key_depth, height = height_of(memory);
  for (int64_t j = 0; j < count; j += WIDTH, panels += height * WIDTH) {
    const Stored* keys[WIDTH];
    for (int k = 0; k < WIDTH; ++k) keys[k] = memory.key + rows[j + k < count ? j + k : count - 1] * memory.key_step;
    for (int64_t d = 0; d < depth; d += WIDTH) {
      const int left = static_cast<int>(depth - d < WIDTH ? depth - d : WIDTH);
      float lanes[WIDTH][WIDTH];
      for (int k = 0; k < WIDTH; ++k) {
        Vector::store(lanes[k], left == WIDTH ? Vector::load(keys[k] + d) : Vector::load_some(keys[k] + d, left, 0));
      }
      for (int i = 0; i < left; ++i) {
        for (int k = 0; k < WIDTH; ++k) panels[(d + i) * WIDTH + k] = lanes[k][i];
      }
    }
    if constexpr (BEFORE<Stored> > 0) {
      for (int k = 0; k < WIDTH; ++k) panels[depth * WIDTH + k] = scale_of(keys[k]);
    }
  }
}

// The scores of some queries by panels; what comes after those of a query, up to a whole panel, is overwritten too. The
// products of a query and a key are added up in the order of `products` and `Vector::sums`: in `WIDTH` sums, which are then
// added to those half as far apart, and so on. Four of these sums at a time are in registers, for all queries.
template <int QUERIES, typename Stored>
void score_panels(const Memory<Stored>& memory, const Group& group, int first, float* const* scores) {
  constexpr int QUARTER = WIDTH / 4;
  const int64_t depth = memory.key_depth, height = height_of(memory);
  int64_t most = 0;
  for (int i = 0; i < QUERIES; ++i) most = group.count[first + i] > most ? group.count[first + i] : most;
  const float* panel = memory.panels;
  for (int64_t j = 0; j < most; j += WIDTH, panel += height * WIDTH) {
    Float quarters[QUERIES][QUARTER];
    for (int l = 0; l < QUARTER; ++l) {
      Float parts[QUERIES][4];
      for (int i = 0; i < QUERIES; ++i) {
        for (int k = 0; k < 4; ++k) parts[i][k] = Vector::all(0);
      }
      const auto add = [&](int64_t d, int k) __attribute__((always_inline)) {
        Float key = Vector::load(panel + d * WIDTH);
        Vector::keep(key);
#pragma GCC unroll 4
        for (int i = 0; i < QUERIES; ++i) {
          parts[i][k] = Vector::fma(Vector::all(group.query[first + i][d]), key, parts[i][k]);
        }
      };
      int64_t d = l;
      for (; d + 3 * QUARTER < depth; d += WIDTH) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) add(d + k * QUARTER, k);
      }
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        if (d + k * QUARTER < depth) add(d + k * QUARTER, k);
      }
      for (int i = 0; i < QUERIES; ++i) {
        quarters[i][l] = Vector::add(Vector::add(parts[i][0], parts[i][2]), Vector::add(parts[i][1], parts[i][3]));
      }
    }
    for (int i = 0; i < QUERIES; ++i) {
      for (int half = QUARTER / 2; half > 0; half /= 2) {
        for (int l = 0; l < half; ++l) quarters[i][l] = Vector::add(quarters[i][l], quarters[i][l + half]);
      }
      Float scaled = Vector::mul(Vector::all(memory.scale), quarters[i][0]);
      if constexpr (BEFORE<Stored> > 0) scaled = Vector::mul(scaled, Vector::load(panel + depth * WIDTH));
      Vector::store(scores[first + i] + j, scaled);
    }
  }
}

// All scores of the group.
template <typename Stored>
INLINE void score_all(const Memory<Stored>& memory, const Group& group, float* const* scores) {
  if (memory.panels == nullptr) {
    score<4>(memory, group, 0, scores);
    return;
  }
  for (int first = 0; first < group.size;) {
    const int left = group.size - first;
    if (left >= 4 && left != 6) {
      score_panels<4>(memory, group, first, scores);
      first += 4;
    } else if (left >= 3) {
      score_panels<3>(memory, group, first, scores);
      first += 3;
    } else if (left == 2) {
      score_panels<2>(memory, group, first, scores);
      first += 2;
    } else {
      score_panels<1>(memory, group, first, scores);
      first += 1;
    }
  }
}

void cap_scores(float cap, int64_t count, float* scores) {
  routines().activate(Activation::tanh, scores, count);
  for (int64_t j = 0; j < count; ++j) scores[j] *= cap;
}

void add_bias(const Group& group, int i, float* scores) {
  const float* bias = group.bias[i];
  const int64_t* places = group.places[i];
  if (bias == nullptr) return;
  for (int64_t j = 0; j < group.count[i]; ++j) scores[j] += bias[places == nullptr ? j : places[j]];
}

// Quantized values count with their scales.
void scale_weights(const Memory<int8_t>& memory, const Group& group, int i, float* weights) {
  for (int64_t j = 0; j < group.count[i]; ++j) {
    weights[j] *= scale_of(memory.value + group.rows[i][j] * memory.value_step);
  }
}

template <typename Stored>
void attend(const Memory<Stored>& memory, const Group& group, float* scratch) {
  float* weights[Group::MOST];
  float factors[Group::MOST];
  int64_t most = 0;
  for (int i = 0; i < group.size; ++i) most = group.count[i] > most ? group.count[i] : most;
  for (int i = 0; i < group.size; ++i) weights[i] = scratch + i * (scratch_size(most) / Group::MOST);
  score_all(memory, group, weights);
  for (int i = 0; i < group.size && memory.cap != 0; ++i) cap_scores(memory.cap, group.count[i], weights[i]);
  for (int i = 0; i < group.size; ++i) add_bias(group, i, weights[i]);
  for (int i = 0; i < group.size; ++i) factors[i] = 1.0f / to_weights(weights[i], group.count[i]);
  if constexpr (std::is_same_v<Stored, int8_t>) {
    for (int i = 0; i < group.size; ++i) scale_weights(memory, group, i, weights[i]);
  }
  mix<Group::MOST>(memory, group, weights, factors);
}

void narrow(const float* values, int64_t count, uint16_t* halves) {
  const auto bounded = [](Float a) { return Vector::max(Vector::all(-65504), Vector::min(Vector::all(65504), a)); };
  int64_t i = 0;
  for (; i + WIDTH <= count; i += WIDTH) Vector::store_half(halves + i, bounded(Vector::load(values + i)));
  if (const int left = static_cast<int>(count - i); left > 0) {
    uint16_t last[WIDTH];
    Vector::store_half(last, bounded(Vector::load_some(values + i, left, 0)));
    __builtin_memcpy(halves + i, last, left * sizeof(uint16_t));
  }
}

// scale = max |x| / 127, q = round_half_even(x / scale), all 0 if the scale is. Numbers that are not finite make the scale
// no number, and with it all that the row is multiplied by.
void quantize(const float* values, int64_t depth, int8_t* row) {
  constexpr uint32_t SIGN = 0x80000000, INFINITE = 0x7f800000;
  uint32_t most = 0;  // the sizes of floats are in the order of their bits
  for (int64_t d = 0; d < depth; ++d) {
    uint32_t bits;
    __builtin_memcpy(&bits, values + d, sizeof bits);
    bits &= ~SIGN;
    most = bits > most ? bits : most;
  }
  float largest, scale = __builtin_nanf("");
  __builtin_memcpy(&largest, &most, sizeof largest);
  if (most < INFINITE) scale = largest / 127;
  __builtin_memcpy(row, &scale, sizeof scale);
  row += sizeof scale;
  if (!(scale > 0)) {
    __builtin_memset(row, 0, static_cast<size_t>(depth));
    return;
  }
  for (int64_t d = 0; d < depth; ++d) {
    float q = values[d] / scale;
    q = q > 127 ? 127 : q < -127 ? -127 : q;  // a subnormal scale is rounded
    q += 12582912.0f;                         // 1.5 * 2^23: rounds to whole numbers, which are the lowest bits
    uint32_t bits;
    __builtin_memcpy(&bits, &q, sizeof bits);
    row[d] = static_cast<int8_t>(bits);
  }
}

}  // namespace
}  // namespace xformc
