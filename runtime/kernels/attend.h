// The arithmetic of attention: a few queries against some rows of a memory.
#pragma once

#include <cstdint>

namespace xformc {

// The keys and values of one head: row i of the keys begins at key + i * key_step.
struct Memory {
  const float* key;
  const float* value;
  int64_t key_step, value_step;
  int64_t key_depth, value_depth;
  float scale;
};

// Queries that are computed together, so that they share what they read. Query i sees rows[i][0 .. count[i] - 1].
struct Group {
  static constexpr int MOST = 4;

  void add(const float* one_query, float* one_out, const int64_t* its_rows, int64_t its_count) {
    query[size] = one_query;
    out[size] = one_out;
    rows[size] = its_rows;
    count[size++] = its_count;
  }
  bool full() const { return size == MOST; }

  int size = 0;
  const float* query[MOST];
  float* out[MOST];
  const int64_t* rows[MOST];
  int64_t count[MOST];
};

// How many floats `attend` needs to work with up to `keys` keys.
inline int64_t scratch_size(int64_t keys) { return Group::MOST * ((keys + 15) / 16 * 16); }

// Computes the queries of the group and empties it. Each is computed by the same operations in any group.
void attend(const Memory& memory, Group& group, float* scratch);

}  // namespace xformc
