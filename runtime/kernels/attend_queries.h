// Shared by Attend and AttendCached: their inputs, their scratch memory, and the split into parallel work.
#pragma once

#include <algorithm>

#include "attend.h"
#include "kernel.h"

namespace xformc {

constexpr int64_t FEW_PRODUCTS = 1 << 16;  // fewer, with keys or values, take less time than waking a thread
constexpr int64_t ENOUGH_CHUNKS = 8;  // few sentences are split into so many chunks of heads, or two for each thread

template <typename Stored>
constexpr Element ELEMENT = std::is_same_v<Stored, float>    ? FLOAT
                            : std::is_same_v<Stored, int8_t> ? INT8
                                                             : FLOAT16;

struct AttendAttributes {
  explicit AttendAttributes(const Attributes& info) {
    scale = info.number("scale");
    cap = info.number_or("cap", 0);
    shared = info.integer("shared");
    repeated = info.integer("repeated");
    require(shared >= 1 && repeated >= 1, "`shared` and `repeated` must be at least 1");
  }

  float scale, cap;
  int64_t shared, repeated;
};

// Calls compute(element) with an element of the type in which keys and values are stored, which is that of an input.
template <typename Compute>
void for_stored(const Value& value, const Compute& compute) {
  const Element element = value.type;
  if (element == FLOAT16) {
    compute(uint16_t{});
  } else if (element == INT8) {
    compute(int8_t{});
  } else {
    compute(float{});
  }
}

// An input that is [batch, .., width]: `width` numbers, with a scale before them if they are quantized.
template <typename Stored = float>
struct Tensor {
  explicit Tensor(const Value& value) : shape(value.shape), data(static_cast<const Stored*>(value.data)) {
    require(shape.size() >= 2, "queries, keys, values and biases have at least two axes");
    require(value.type == ELEMENT<Stored>, "keys and values are both float32, both float16 or both int8");
    require(depth() >= 0, "quantized keys and values begin with their scale");
  }

  int64_t width() const { return shape.back(); }
  int64_t depth() const { return width() - BEFORE<Stored>; }
  const Stored* numbers(int64_t row) const { return data + row * width() + BEFORE<Stored>; }
  int64_t size() const { return product(shape, 0, shape.size()); }

  Shape shape;
  const Stored* data;
};

// The memory slot of each sentence: `slots`, or by default the sentence's own index.
class Slots {
 public:
  Slots(const Context& context, size_t index, int64_t batch, int64_t count)
      : slots_(optional_input<int64_t>(context, index, batch, "there must be one slot for each sentence")) {
    for (int64_t i = 0; i < batch; ++i) {
      require((*this)[i] >= 0 && (*this)[i] < count, "a sentence's slot is outside of the memory");
    }
  }

  int64_t operator[](int64_t sentence) const { return slots_ == nullptr ? sentence : slots_[sentence]; }

  // Whether all sentences have different slots.
  bool differ(int64_t batch) const {
    if (slots_ == nullptr) return true;
    std::vector<int64_t> sorted(slots_, slots_ + batch);
    std::sort(sorted.begin(), sorted.end());
    return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  }

 private:
  const int64_t* slots_;
};

// The queries [batch, rows, shared, repeated, depth] and their results [.., value_depth].
struct Queries {
  Queries(const AttendAttributes& attributes, const Tensor<>& query, int64_t value_depth_)
      : batch(query.shape.at(0)), shared(attributes.shared), repeated(attributes.repeated), depth(query.depth()),
        value_depth(value_depth_), query_(query.data) {
    require(depth >= 1, "the query has no depth");
    const int64_t heads = query.size() == 0 ? 0 : query.size() / batch / depth;
    require(heads % shared == 0 && heads / shared % repeated == 0,
            "the query's axes do not fit `shared` and `repeated`");
    rows = heads / shared / repeated;
  }

  // Allocates the results, when all inputs have been checked: a value's depth that is a lie is not asked for.
  void make_output(const Context& context, Shape shape) {
    shape.back() = value_depth;
    out_ = context.output<float>(0, shape);
  }

  const float* query(int64_t sentence, int64_t row, int64_t head, int64_t r) const {
    return query_ + place(sentence, row, head, r) * depth;
  }
  float* out(int64_t sentence, int64_t row, int64_t head, int64_t r) const {
    return out_ + place(sentence, row, head, r) * value_depth;
  }

  int64_t batch, rows, shared, repeated, depth, value_depth;

 private:
  int64_t place(int64_t sentence, int64_t row, int64_t head, int64_t r) const {
    return ((sentence * rows + row) * shared + head) * repeated + r;
  }

  const float* query_;
  float* out_ = nullptr;
};

// The optional bias of the scores, [heads, queries, keys].
class Bias {
 public:
  Bias(const Context& context, size_t index, const Queries& queries, int64_t keys)
      : keys_(keys), repeated_(queries.repeated) {
    if (!context.input(index)) return;
    const Tensor<> bias(context.input(index));
    require(bias.shape.size() == 3 && bias.shape[0] == times(queries.shared, queries.repeated) && bias.shape[2] == keys,
            "the bias is not [heads, queries, keys]");
    queries_ = bias.shape[1];
    require(queries_ > 0 && queries.rows % queries_ == 0, "the bias is for another number of queries");
    data_ = bias.data;
  }

  // The bias of a row of a sentence for each key, or null.
  const float* of(int64_t row, int64_t head, int64_t r) const {
    if (data_ == nullptr) return nullptr;
    return data_ + ((head * repeated_ + r) * queries_ + row % queries_) * keys_;
  }

 private:
  const float* data_ = nullptr;
  int64_t queries_ = 0, keys_, repeated_;
};

// Calls each(sentence, first head, end of heads) for all heads of all sentences, in parallel if that pays.
template <typename Each>
void for_each_head(const Context& context, const Queries& queries, int64_t keys, const Each& each) {
  const int64_t units = times(queries.batch, queries.shared);
  const int64_t weights = times(times(times(units, queries.rows), queries.repeated), keys);
  const int64_t products = times(weights, std::max(queries.depth, queries.value_depth));
  if (products == 0) return;
  const int64_t chunks =
      products < FEW_PRODUCTS ? 1 : std::min(units, std::max({ENOUGH_CHUNKS, queries.batch, 2 * machine_threads()}));
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

// Scratch memory of the calling thread.
inline float* scratch(int64_t size) {
  static thread_local Buffer buffer;
  return buffer.at_least<float>(size);
}

// Prefetches rows of a head.
template <typename Stored>
void fetch_rows(const Memory<Stored>& memory, const std::vector<int64_t>& rows) {
  for (const int64_t row : rows) {
    fetch(memory.key + row * memory.key_step, memory.key_depth);
    fetch(memory.value + row * memory.value_step, memory.value_depth);
  }
}

// Lets `memory` refer to the keys of some rows in panels, if so many queries make that pay. The panels are the calling thread's,
// which has those of one head at a time.
template <typename Stored>
void pack_keys(const StepRoutines& routines, Memory<Stored>& memory, const int64_t* rows, int64_t count,
               int64_t queries) {
  constexpr int64_t ENOUGH_QUERIES = 8;
  if (queries < ENOUGH_QUERIES || count == 0) return;
  static thread_local Buffer buffer;
  float* panels = buffer.at_least<float>(panels_size(count, memory.key_depth));
  if constexpr (std::is_same_v<Stored, float>) {
    routines.pack(memory, rows, count, panels);
  } else if constexpr (std::is_same_v<Stored, int8_t>) {
    routines.pack_int8(memory, rows, count, panels);
  } else {
    routines.pack_narrow(memory, rows, count, panels);
  }
  memory.panels = panels;
}

// Takes the queries of one head and computes them group by group. The first `shared` rows are the same for all of them.
template <typename Stored>
class Groups {
 public:
  Groups(const StepRoutines& routines, const Memory<Stored>& memory, int64_t shared, float* scratch)
      : routines_(routines), memory_(memory), scratch_(scratch) {
    group_.shared = shared;
  }

  void add(const float* query, float* out, const int64_t* rows, int64_t count, const float* bias,
           const int64_t* places) {
    group_.add(query, out, rows, count, bias, places);
    if (group_.full()) finish();
  }
  void finish() {
    if (group_.size == 0) return;
    if constexpr (std::is_same_v<Stored, float>) {
      routines_.attend(memory_, group_, scratch_);
    } else if constexpr (std::is_same_v<Stored, int8_t>) {
      routines_.attend_int8(memory_, group_, scratch_);
    } else {
      routines_.attend_narrow(memory_, group_, scratch_);
    }
    group_.size = 0;
    memory_.ahead_count = 0;
  }

 private:
  const StepRoutines& routines_;
  Memory<Stored> memory_;
  Group group_;
  float* scratch_;
};

}  // namespace xformc
