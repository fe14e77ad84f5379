// Attention for any kind of vector. A file for each kind of machine defines `Vector` and includes this one; everything
// here is local to that file, because each is compiled for another machine.
//
// Vector has: width (int); columns (int): how many vectors of a value are added up at once; Float, a vector of that
// width; all, load, store, load_some(from, count, other) and store_some of the first `count` lanes, where the others are
// `other`, or left alone; add, sub, mul, fma(a, b, c) = a * b + c, max (the second if either is not a number); sum,
// sum_double, highest of the lanes; sums(vectors), the sum of each of `width` vectors; at_least, a bit for each lane;
// shift(a, n) = a * 2^n, where n is in the lowest bits of the pattern of bits.
#include "attend.h"

namespace xformc {
namespace {

using Float = Vector::Float;
constexpr int WIDTH = Vector::width;

#define INLINE inline __attribute__((always_inline))

// e^x for x from -87 to 0 with a relative error of 8e-8 at most; e^-87 for less. 2^n e^f with |f| <= log(2) / 2, and for
// e^f the polynomial with the smallest relative error.
INLINE Float exp_of(Float x) {
  const Float whole = Vector::all(12582912.0f);  // 1.5 * 2^23: what is added to it is rounded to whole numbers
  x = Vector::max(Vector::all(-87.0f), x);
  const Float shifted = Vector::fma(x, Vector::all(1.44269504f), whole), n = Vector::sub(shifted, whole);
  Float f = Vector::fma(n, Vector::all(-0.693359375f), x);  // log(2) in two parts, the first one with few bits
  f = Vector::fma(n, Vector::all(2.12194440e-4f), f);
  constexpr float factors[] = {0.008368710055947304f, 0.04166838899254799f, 0.1666652113199234f,
                               0.4999999403953552f,   1.0f,                 1.0f};
  Float y = Vector::all(0.001381461275741458f);
  for (const float factor : factors) y = Vector::fma(y, f, Vector::all(factor));
  return Vector::shift(y, shifted);
}

// The products of each query with each of `count` of its keys, at most KEYS; lane i * KEYS + j has query i's with key j.
template <int QUERIES, int KEYS>
INLINE Float products(const float* const* queries, const float* const* keys, int64_t depth) {
  Float parts[WIDTH];
  for (int i = 0; i < WIDTH; ++i) parts[i] = Vector::all(0);
  int64_t d = 0;
  for (; d + WIDTH <= depth; d += WIDTH) {
    Float query[QUERIES];
    for (int i = 0; i < QUERIES; ++i) query[i] = Vector::load(queries[i] + d);
#pragma GCC unroll 16
    for (int j = 0; j < KEYS; ++j) {
      const Float key = Vector::load(keys[j] + d);
      for (int i = 0; i < QUERIES; ++i) parts[i * KEYS + j] = Vector::fma(query[i], key, parts[i * KEYS + j]);
    }
  }
  if (const int left = static_cast<int>(depth - d); left > 0) {
    Float query[QUERIES];
    for (int i = 0; i < QUERIES; ++i) query[i] = Vector::load_some(queries[i] + d, left, 0);
#pragma GCC unroll 16
    for (int j = 0; j < KEYS; ++j) {
      const Float key = Vector::load_some(keys[j] + d, left, 0);
      for (int i = 0; i < QUERIES; ++i) parts[i * KEYS + j] = Vector::fma(query[i], key, parts[i * KEYS + j]);
    }
  }
  return Vector::sums(parts);
}

// The scores of queries first .. first + QUERIES - 1 to `count` of the rows of the first of them, from row j on. What
// comes after those scores, up to a multiple of WIDTH, is overwritten too.
template <int QUERIES, int KEYS>
INLINE void score_rows(const Memory& memory, const Group& group, int first, float* const* scores, int64_t j,
                       int64_t count) {
  const float* keys[KEYS];
  for (int i = 0; i < KEYS; ++i) {
    keys[i] = memory.key + group.rows[first][j + (i < count ? i : count - 1)] * memory.key_step;
  }
  float lanes[WIDTH];
  Vector::store(lanes, Vector::mul(Vector::all(memory.scale),
                                   products<QUERIES, KEYS>(group.query + first, keys, memory.key_depth)));
  for (int i = 0; i < QUERIES; ++i) __builtin_memcpy(scores[first + i] + j, lanes + i * KEYS, KEYS * sizeof(float));
}

// Fetches the rows ahead to the cache, a few with each of the `total` rows that are computed.
struct Ahead {
  const Memory& memory;
  int64_t share, due, fetched;  // in 1/256 of a row; the last in rows

  INLINE Ahead(const Memory& memory_, int64_t total)
      : memory(memory_), share((256 * memory.ahead_count + total - 1) / total), due(0), fetched(0) {}

  INLINE void computed(int64_t rows) {
    due += rows * share;
    for (; 256 * fetched < due && fetched < memory.ahead_count; ++fetched) {
      const int64_t row = memory.ahead[fetched];
      fetch(memory.key + row * memory.key_step + memory.key_depth, memory.key_depth);
      fetch(memory.value + row * memory.value_step + memory.value_depth, memory.value_depth);
    }
  }
};

// The scores of one query to its rows j .. end - 1.
INLINE void score_own(const Memory& memory, const Group& group, int i, float* const* scores, int64_t j, int64_t end,
                      Ahead& ahead) {
  constexpr int QUARTER = WIDTH / 4;
  for (; j < end; j += WIDTH) {
    const int64_t count = end - j;
    if (count <= QUARTER) {
      score_rows<1, QUARTER>(memory, group, i, scores, j, count);
    } else if (count <= 2 * QUARTER) {
      score_rows<1, 2 * QUARTER>(memory, group, i, scores, j, count);
    } else {
      score_rows<1, WIDTH>(memory, group, i, scores, j, count);
    }
    ahead.computed(WIDTH);
  }
}

// Scores to weights exp(score - highest), in place; gives their sum, to which what may be after `count` adds nothing.
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

// The `last` first lanes of the last vector of the columns, else all.
template <int COLUMNS>
INLINE Float column(const float* row, int c, int last) {
  return c + 1 < COLUMNS || last == WIDTH ? Vector::load(row + c * WIDTH)
                                          : Vector::load_some(row + c * WIDTH, last, 0);
}

// COLUMNS vectors of the values, from column `first` on, for all QUERIES queries; the last vector has `last` lanes.
template <int QUERIES, int COLUMNS>
void mix_columns(const Memory& memory, const Group& group, const float* const* weights, const float* factors,
                 int64_t first, int last) {
  Float sums[QUERIES][COLUMNS];
  int64_t shared = group.shared;
  for (int i = 0; i < QUERIES; ++i) {
    for (int c = 0; c < COLUMNS; ++c) sums[i][c] = Vector::all(0);
    shared = group.count[i] < shared ? group.count[i] : shared;
  }
  const float* values = memory.value + first;
  const int64_t step = memory.value_step;
  for (int64_t j = 0; j < shared; ++j) {
    const float* row = values + group.rows[0][j] * step;
    Float parts[COLUMNS];
    for (int c = 0; c < COLUMNS; ++c) parts[c] = column<COLUMNS>(row, c, last);
#pragma GCC unroll 4
    for (int i = 0; i < QUERIES; ++i) {
      const Float weight = Vector::all(weights[i][j]);
      for (int c = 0; c < COLUMNS; ++c) sums[i][c] = Vector::fma(weight, parts[c], sums[i][c]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < QUERIES; ++i) {
    for (int64_t j = shared; j < group.count[i]; ++j) {
      const float* row = values + group.rows[i][j] * step;
      const Float weight = Vector::all(weights[i][j]);
      for (int c = 0; c < COLUMNS; ++c) sums[i][c] = Vector::fma(weight, column<COLUMNS>(row, c, last), sums[i][c]);
    }
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

template <int QUERIES>
void mix(const Memory& memory, const Group& group, const float* const* weights, const float* factors) {
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

// All scores of the group. A key that the first QUERIES queries see is read once for them.
template <int QUERIES>
INLINE void score(const Memory& memory, const Group& group, float* const* scores) {
  if (group.size < QUERIES) {
    if constexpr (QUERIES > 1) score<QUERIES / 2>(memory, group, scores);
    return;
  }
  constexpr int KEYS = WIDTH / QUERIES;
  int64_t shared = QUERIES > 1 ? group.shared : 0, total = 0;
  for (int i = 0; i < QUERIES; ++i) shared = group.count[i] < shared ? group.count[i] : shared;
  for (int i = 0; i < group.size; ++i) total += group.count[i] - (0 < i && i < QUERIES ? shared : 0);
  Ahead ahead(memory, total);
  for (int64_t j = 0; j < shared; j += KEYS) {
    score_rows<QUERIES, KEYS>(memory, group, 0, scores, j, shared - j);
    ahead.computed(KEYS);
  }
  for (int i = 0; i < group.size; ++i) {
    score_own(memory, group, i, scores, i < QUERIES ? shared : 0, group.count[i], ahead);
  }
}

void attend(const Memory& memory, const Group& group, float* scratch) {
  static_assert(Group::MOST == 4, "score and mix have code for so many queries");
  float* weights[Group::MOST];
  float factors[Group::MOST];
  int64_t most = 0;
  for (int i = 0; i < group.size; ++i) most = group.count[i] > most ? group.count[i] : most;
  for (int i = 0; i < group.size; ++i) weights[i] = scratch + i * (scratch_size(most) / Group::MOST);
  score<Group::MOST>(memory, group, weights);
  for (int i = 0; i < group.size; ++i) factors[i] = 1.0f / to_weights(weights[i], group.count[i]);
  mix<Group::MOST>(memory, group, weights, factors);
}

}  // namespace
}  // namespace xformc
