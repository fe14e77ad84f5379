// The arithmetic of attention, of the candidates and of positions, for each kind of machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace xformc {

// How many elements of a row stand before the numbers of each head: the bytes of the head's scale, a float32, if the
// numbers are quantized to int8.
template <typename Stored>
constexpr int64_t BEFORE = std::is_same_v<Stored, int8_t> ? sizeof(float) : 0;

// The scale of the quantized numbers of a head in a row.
__attribute__((always_inline)) inline float scale_of(const int8_t* row) {
  float scale;
  std::memcpy(&scale, row - BEFORE<int8_t>, sizeof scale);
  return scale;
}

// The keys and values of one head, float32, float16 (as uint16_t) or int8: row i of the keys has its numbers at
// key + i * key_step. Scores are cap * tanh(scale * q . k), or without a cap (0) scale * q . k. The rows `ahead` of the next
// head, which follows this one in each row, are prefetched. `panels`, if not null, are the keys that the queries see, as
// `pack` wrote them.
template <typename Stored>
struct Memory {
  const Stored* key;
  const Stored* value;
  int64_t key_step, value_step;
  int64_t key_depth, value_depth;
  float scale, cap;
  const int64_t* ahead;
  int64_t ahead_count;
  const float* panels = nullptr;
};

// Queries that are computed together to share their reads. Query i sees rows[i][0 .. count[i] - 1], the first `shared`
// of which, as far as it sees them, are the same for all queries. bias[i], if not null, is added to the scores:
// bias[i][places[i][j]] to the score of row j, or bias[i][j] if places[i] is null.
struct Group {
  static constexpr int MOST = 6;

  void add(const float* one_query, float* one_out, const int64_t* its_rows, int64_t its_count, const float* its_bias,
           const int64_t* its_places) {
    query[size] = one_query;
    out[size] = one_out;
    rows[size] = its_rows;
    bias[size] = its_bias;
    places[size] = its_places;
    count[size++] = its_count;
  }
  bool full() const { return size == MOST; }

  int size = 0;
  int64_t shared = 0;
  const float* query[MOST];
  float* out[MOST];
  const int64_t* rows[MOST];
  int64_t count[MOST];
  const float* bias[MOST];
  const int64_t* places[MOST];
};

// The number of floats that `pack` needs for the panels of some keys.
inline int64_t panels_size(int64_t keys, int64_t depth) { return (keys + 15) / 16 * 16 * (depth + 1); }

// The number of scratch floats that `attend` needs for up to `keys` keys: it writes one vector more.
inline int64_t scratch_size(int64_t keys) { return Group::MOST * ((keys + 15) / 16 * 16 + 16); }

// The best logits of a part of a row, best first; ties go to the earlier token.
struct Best {
  int64_t most;    // how many are kept
  int64_t size;    // how many there are
  float* logit;    // [most]
  int64_t* token;  // [most]
};

constexpr int64_t COLLECT_MORE = 15;
constexpr int64_t SCAN_BLOCK = 1024;  // how many logits are added up before their sum is stored

template <typename Stored>
void fetch(const Stored* row, int64_t depth) {
  for (int64_t d = -BEFORE<Stored>; d < depth; d += 64 / sizeof(Stored)) __builtin_prefetch(row + d, 0, 2);
}

struct StepRoutines {
  // Computes the queries of a group. Each is computed by the same operations in any group.
  void (*attend)(const Memory<float>& memory, const Group& group, float* scratch);
  void (*attend_narrow)(const Memory<uint16_t>& memory, const Group& group, float* scratch);
  void (*attend_int8)(const Memory<int8_t>& memory, const Group& group, float* scratch);

  // Writes the keys of some rows in panels, in which the lanes of a vector hold a number of several keys each. Scores
  // by panels have the same bits as scores by rows.
  void (*pack)(const Memory<float>& memory, const int64_t* rows, int64_t count, float* panels);
  void (*pack_narrow)(const Memory<uint16_t>& memory, const int64_t* rows, int64_t count, float* panels);
  void (*pack_int8)(const Memory<int8_t>& memory, const int64_t* rows, int64_t count, float* panels);

  // Rounds each number to the nearest float16, saturating at the largest.
  void (*narrow)(const float* values, int64_t count, uint16_t* halves);

  // Quantizes the numbers of a head: first the BEFORE<int8_t> bytes of their scale, then `depth` integers. All routines
  // give the same bytes.
  void (*quantize)(const float* values, int64_t depth, int8_t* row);

  // Offers the logits of the tokens first .. first + count - 1, at most SCAN_BLOCK, to `best`. Returns the highest of
  // them, and the sum of exp(logit - highest).
  void (*scan)(const float* logits, int64_t first, int64_t count, Best& best, float& highest, double& sum);

  // Writes the logits that are not less than `least`, of which there may be `count`, and their places in order; what
  // is after them may be overwritten, up to COLLECT_MORE numbers beyond `count`. Gives how many there are.
  int64_t (*collect)(const float* logits, int64_t count, float least, float* found, int32_t* places);

  // Writes e^((logit - highest) / divisor) of each logit; of exponents below -87, e^-87.
  void (*weigh)(const float* logits, int64_t count, float highest, float divisor, float* weights);

  // Writes the sine of each number, or with `quarters` = 1 its cosine, whatever stands beside it.
  void (*waves)(const float* x, int64_t count, int64_t quarters, float* results);
};

extern const StepRoutines STEP_PORTABLE;
#if defined(__x86_64__)
extern const StepRoutines STEP_AVX2;
extern const StepRoutines STEP_AVX512;
#elif defined(__aarch64__)
extern const StepRoutines STEP_NEON;
#endif

// Returns the fastest routines for this machine; the environment variable XFORMC_KERNELS_ISA works as in gemm.h.
const StepRoutines& step_routines();

}  // namespace xformc
