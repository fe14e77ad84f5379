#include <algorithm>
#include <cmath>

#include "attend.h"

namespace xformc {

void attend(const Memory& memory, Group& group, float* scratch) {
  for (int i = 0; i < group.size; ++i) {
    const int64_t count = group.count[i];
    float most = -INFINITY, total = 0;
    for (int64_t j = 0; j < count; ++j) {
      float score = 0;
      const float* key = memory.key + group.rows[i][j] * memory.key_step;
      for (int64_t d = 0; d < memory.key_depth; ++d) score += group.query[i][d] * key[d];
      scratch[j] = score * memory.scale;
      most = std::max(most, scratch[j]);
    }
    std::fill(group.out[i], group.out[i] + memory.value_depth, 0.0f);
    for (int64_t j = 0; j < count; ++j) {
      const float weight = std::exp(scratch[j] - most);
      const float* value = memory.value + group.rows[i][j] * memory.value_step;
      total += weight;
      for (int64_t d = 0; d < memory.value_depth; ++d) group.out[i][d] += weight * value[d];
    }
    for (int64_t d = 0; d < memory.value_depth; ++d) group.out[i][d] /= total;
  }
  group.size = 0;
}

}  // namespace xformc
