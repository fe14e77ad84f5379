// Attend and AttendCached (docs/kernels.md): which rows of the memory each query sees, and the split into parallel work.
#include "attend.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "gemm.h"
#include "kernel.h"

namespace xformc {
namespace {

constexpr int64_t FEW_PRODUCTS = 1 << 17;  // fewer multiplications than this take less time than waking a thread
constexpr int64_t ENOUGH_CHUNKS = 16;      // parallel work is split no further than this without need

struct Attributes {
  explicit Attributes(const OrtKernelInfo* raw) {
    const Ort::ConstKernelInfo info(raw);
    scale = info.GetAttribute<float>("scale");
    shared = info.GetAttribute<int64_t>("shared");
    repeated = info.GetAttribute<int64_t>("repeated");
  }

  float scale;
  int64_t shared, repeated;
};

// A float32 input that is [batch, .., shared, .., depth].
struct Tensor {
  Tensor(const Ort::ConstValue& value) : shape(shape_of(value)), data(value.GetTensorData<float>()) {}

  int64_t depth() const { return shape.back(); }
  int64_t size() const { return product(shape, 0, shape.size()); }

  Shape shape;
  const float* data;
};

template <typename T>
const T* optional_input(Ort::KernelContext& context, size_t index) {
  if (index >= context.GetInputCount()) return nullptr;
  const Ort::ConstValue value = context.GetInput(index);
  return value == nullptr ? nullptr : value.GetTensorData<T>();
}

int64_t slot_of(const int64_t* slots, int64_t sentence, int64_t count) {
  const int64_t slot = slots == nullptr ? sentence : slots[sentence];
  require(slot >= 0 && slot < count, "a sentence's slot is outside of the memory");
  return slot;
}

// The queries [batch, rows, shared, repeated, depth] and what becomes of them.
struct Queries {
  Queries(const Attributes& attributes, const Tensor& query, int64_t value_depth, float* out)
      : batch(query.shape.at(0)), shared(attributes.shared), repeated(attributes.repeated), depth(query.depth()),
        value_depth(value_depth), query(query.data), out(out) {
    const int64_t row = batch * shared * repeated * depth;
    rows = row == 0 ? 0 : query.size() / row;
    require(rows * row == query.size(), "the query's axes do not fit `shared` and `repeated`");
  }

  int64_t place(int64_t sentence, int64_t row, int64_t head) const {
    return ((sentence * rows + row) * shared + head) * repeated;
  }

  int64_t batch, rows, shared, repeated, depth, value_depth;
  const float* query;
  float* out;
};

// Calls each(sentence, first head, end of heads, scratch) for all heads of all sentences, in parallel if that pays.
template <typename Each>
void for_each_head(Ort::KernelContext& context, const Queries& queries, int64_t keys, const Each& each) {
  const int64_t products = queries.batch * queries.rows * queries.shared * queries.repeated * keys *
                           (queries.depth + queries.value_depth);
  const int64_t units = queries.batch * queries.shared;
  const int64_t chunks = products < FEW_PRODUCTS ? 1 : std::min(units, std::max(ENOUGH_CHUNKS, queries.batch));
  parallel(context, static_cast<size_t>(chunks), [&](size_t i) {
    const int64_t chunk = static_cast<int64_t>(i), end = units * (chunk + 1) / chunks;
    for (int64_t unit = units * chunk / chunks; unit < end;) {
      const int64_t sentence = unit / queries.shared, first = unit % queries.shared;
      const int64_t last = std::min(queries.shared, first + end - unit);
      each(sentence, first, last);
      unit += last - first;
    }
  });
}

void compute(const StepRoutines& routines, const Memory& memory, Group& group, std::vector<float>& scratch) {
  if (group.size > 0) routines.attend(memory, group, scratch.data());
  group.size = 0;
}

struct Attend {
  explicit Attend(const OrtKernelInfo* info)
      : attributes(info), causal(Ort::ConstKernelInfo(info).GetAttribute<int64_t>("causal") != 0) {}

  void Compute(OrtKernelContext* raw) {
    Ort::KernelContext context(raw);
    const Tensor query = context.GetInput(0), key = context.GetInput(1), value = context.GetInput(2);
    const bool* mask = optional_input<bool>(context, 3);
    const int64_t* slots = optional_input<int64_t>(context, 4);
    Shape shape = query.shape;
    shape.back() = value.depth();
    float* out = context.GetOutput(0, shape).GetTensorMutableData<float>();
    const Queries queries(attributes, query, value.depth(), out);
    const int64_t count = key.shape.at(0), keys = key.shape.at(1), shared = queries.shared;
    require(key.depth() == query.depth(), "query and key differ in depth");
    require(key.size() == count * keys * shared * key.depth(), "the key's axes do not fit `shared`");
    require(value.size() == count * keys * shared * value.depth(), "the value's axes do not fit the key's");
    for (int64_t i = 0; i < queries.batch; ++i) slot_of(slots, i, count);

    for_each_head(context, queries, keys, [&](int64_t sentence, int64_t first, int64_t last) {
      const int64_t slot = slots == nullptr ? sentence : slots[sentence];
      std::vector<int64_t> seen, all(static_cast<size_t>(keys));
      std::iota(all.begin(), all.end(), 0);
      for (int64_t i = 0; i < keys; ++i) {
        if (mask == nullptr || mask[slot * keys + i]) seen.push_back(i);
      }
      const std::vector<float> zeros(static_cast<size_t>(query.depth()));
      std::vector<float> scratch(static_cast<size_t>(scratch_size(keys)));
      for (int64_t head = first; head < last; ++head) {
        const int64_t key_step = shared * key.depth(), value_step = shared * value.depth();
        const Memory memory{key.data + slot * keys * key_step + head * key.depth(),
                            value.data + slot * keys * value_step + head * value.depth(),
                            key_step, value_step, key.depth(), value.depth(), attributes.scale};
        Group group;
        for (int64_t row = 0; row < queries.rows; ++row) {
          const auto end = causal ? std::upper_bound(seen.begin(), seen.end(), row) : seen.end();
          const int64_t count = end - seen.begin();
          for (int64_t r = 0; r < queries.repeated; ++r) {
            const int64_t place = queries.place(sentence, row, head) + r;
            if (count > 0) {
              group.add(queries.query + place * key.depth(), out + place * value.depth(), seen.data(), count);
            } else {
              group.add(zeros.data(), out + place * value.depth(), all.data(), keys);
            }
            if (group.full()) compute(routines, memory, group, scratch);
          }
        }
        compute(routines, memory, group, scratch);
      }
    });
  }

  Attributes attributes;
  bool causal;
  const StepRoutines& routines = step_routines();
};

struct AttendCached {
  explicit AttendCached(const OrtKernelInfo* info)
      : attributes(info), window(Ort::ConstKernelInfo(info).GetAttribute<int64_t>("window")) {}

  void Compute(OrtKernelContext* raw) {
    Ort::KernelContext context(raw);
    const Tensor query = context.GetInput(0), key = context.GetInput(1), value = context.GetInput(2);
    const Tensor key_cache = context.GetInput(3), value_cache = context.GetInput(4);
    const int64_t position = *context.GetInput(5).GetTensorData<int64_t>();
    const int64_t* ancestors = optional_input<int64_t>(context, 6);
    const int64_t* slots = optional_input<int64_t>(context, 7);
    Shape shape = query.shape;
    shape.back() = value.depth();
    float* out = context.GetOutput(0, shape).GetTensorMutableData<float>();
    const Queries queries(attributes, query, value.depth(), out);
    const int64_t count = key_cache.shape.at(0), capacity = key_cache.shape.at(1), beam = key_cache.shape.at(2);
    const int64_t shared = queries.shared, key_step = shared * key.depth(), value_step = shared * value.depth();
    require(queries.rows == beam, "the cache was made for another number of hypotheses");
    require(key.depth() == query.depth() && key.size() == queries.batch * beam * key_step, "the key's axes do not fit");
    require(value.size() == queries.batch * beam * value_step, "the value's axes do not fit");
    require(key_cache.depth() == key_step && value_cache.depth() == value_step, "the caches' depths do not fit");
    require(value_cache.size() == count * capacity * beam * value_step, "the caches differ in size");
    require(position >= 0 && position < capacity, "the cache is full");
    for (int64_t i = 0; i < queries.batch; ++i) slot_of(slots, i, count);
    const int64_t oldest = window > 0 ? std::max<int64_t>(0, position + 1 - window) : 0;
    const int64_t keys = position + 1 - oldest;

    for_each_head(context, queries, keys, [&](int64_t sentence, int64_t first, int64_t last) {
      const int64_t slot = slots == nullptr ? sentence : slots[sentence];
      float* slot_keys = const_cast<float*>(key_cache.data) + slot * capacity * beam * key_step;
      float* slot_values = const_cast<float*>(value_cache.data) + slot * capacity * beam * value_step;
      std::vector<int64_t> rows(static_cast<size_t>(beam * keys));
      std::vector<float> scratch(static_cast<size_t>(scratch_size(keys)));
      for (int64_t hypothesis = 0; hypothesis < beam; ++hypothesis) {
        const int64_t newest = position * beam + hypothesis, from = sentence * beam + hypothesis;
        std::memcpy(slot_keys + newest * key_step + first * key.depth(),
                    key.data + from * key_step + first * key.depth(),
                    static_cast<size_t>((last - first) * key.depth()) * sizeof(float));
        std::memcpy(slot_values + newest * value_step + first * value.depth(),
                    value.data + from * value_step + first * value.depth(),
                    static_cast<size_t>((last - first) * value.depth()) * sizeof(float));
        int64_t* seen = rows.data() + hypothesis * keys;
        for (int64_t i = oldest; i < position; ++i) {
          *seen++ = i * beam + (ancestors == nullptr ? hypothesis : ancestors[from * position + i]);
        }
        *seen = newest;
      }
      for (int64_t head = first; head < last; ++head) {
        const Memory memory{slot_keys + head * key.depth(), slot_values + head * value.depth(), key_step, value_step,
                            key.depth(), value.depth(), attributes.scale};
        Group group;
        for (int64_t hypothesis = 0; hypothesis < beam; ++hypothesis) {
          for (int64_t r = 0; r < queries.repeated; ++r) {
            const int64_t place = queries.place(sentence, hypothesis, head) + r;
            group.add(queries.query + place * key.depth(), out + place * value.depth(), rows.data() + hypothesis * keys,
                      keys);
            if (group.full()) compute(routines, memory, group, scratch);
          }
        }
        compute(routines, memory, group, scratch);
      }
    });
  }

  Attributes attributes;
  int64_t window;
  const StepRoutines& routines = step_routines();
};

}  // namespace

const StepRoutines& step_routines() {
#if defined(__x86_64__)
  if (&routines() == &AVX512) return STEP_AVX512;
  if (&routines() == &AVX2) return STEP_AVX2;
#endif
  return STEP_PORTABLE;
}

void add_attention(Ort::CustomOpDomain& domain) {
  static const Operator<Attend> attend("Attend", {FLOAT, FLOAT, FLOAT, BOOL, INT64}, {FLOAT}, 3);
  static const Operator<AttendCached> cached(
      "AttendCached", {FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, INT64, INT64, INT64}, {FLOAT}, 6);
  domain.Add(&attend);
  domain.Add(&cached);
}

}  // namespace xformc
