// Attend (docs/kernels.md): attention to a memory that is complete from the start.
#include "attend.h"

#include <numeric>

#include "attend_queries.h"
#include "gemm.h"

namespace xformc {
namespace {

struct Attend : Kernel {
  explicit Attend(const Attributes& info) : attributes(info), causal(info.integer("causal") != 0) {}

  void run(const Context& context) override {
    for_stored(context.input(1), [&](auto stored) { compute<decltype(stored)>(context); });
  }

  template <typename Stored>
  void compute(const Context& context) const {
    const Tensor<> query(context.input(0));
    const Tensor<Stored> key(context.input(1)), value(context.input(2));
    Queries queries(attributes, query, value.depth());
    const int64_t count = key.shape.at(0), keys = key.shape.at(1), rows = times(times(count, keys), queries.shared);
    const bool* mask = optional_input<bool>(context, 3, times(count, keys), "the mask's axes do not fit the key's");
    const Slots slots(context, 4, queries.batch, count);
    const Bias bias(context, 5, queries, keys);
    require(keys > 0, "there are no keys to attend to");
    require(key.depth() == query.depth(), "query and key differ in depth");
    require(key.size() == times(rows, key.width()), "the key's axes do not fit `shared`");
    require(value.size() == times(rows, value.width()), "the value's axes do not fit the key's");
    queries.make_output(context, query.shape);
    if (query.size() == 0) return;  // then nothing says that there are as many keys as the key's axes say

    std::vector<int64_t> every(static_cast<size_t>(keys));
    std::iota(every.begin(), every.end(), 0);
    for_each_head(context, queries, keys, [&](int64_t sentence, int64_t first, int64_t last) {
      const int64_t slot = slots[sentence];
      static thread_local std::vector<int64_t> found;
      found.clear();
      for (int64_t i = 0; mask != nullptr && i < keys; ++i) {
        if (mask[slot * keys + i]) found.push_back(i);
      }
      const std::vector<int64_t>& seen = mask == nullptr ? every : found;
      float* space = scratch(scratch_size(keys));
      for (int64_t head = first; head < last; ++head) {
        const int64_t place = slot * keys * queries.shared + head;
        const int64_t ahead = head + 1 < last ? static_cast<int64_t>(seen.size()) : 0;
        Memory<Stored> memory{key.numbers(place),
                              value.numbers(place),
                              queries.shared * key.width(),
                              queries.shared * value.width(),
                              key.depth(),
                              value.depth(),
                              attributes.scale,
                              attributes.cap,
                              seen.data(),
                              ahead};
        if (head == first) fetch_rows(memory, seen);
        const int64_t together = queries.rows * queries.repeated, count = static_cast<int64_t>(seen.size());
        pack_keys(routines, memory, seen.data(), count, together);
        attend(queries, bias, sentence, head, memory, seen, every, space);
      }
    });
  }

  template <typename Stored>
  void attend(const Queries& queries, const Bias& bias, int64_t sentence, int64_t head, const Memory<Stored>& memory,
              const std::vector<int64_t>& seen, const std::vector<int64_t>& every, float* scratch) const {
    Groups<Stored> groups(routines, memory, static_cast<int64_t>(seen.size()), scratch);
    for (int64_t row = 0; row < queries.rows; ++row) {
      const auto end = causal ? std::upper_bound(seen.begin(), seen.end(), row) : seen.end();
      for (int64_t r = 0; r < queries.repeated; ++r) {
        float* out = queries.out(sentence, row, head, r);
        if (end == seen.begin()) {
          attend_to_all(memory, out, every, scratch);
        } else {
          groups.add(queries.query(sentence, row, head, r), out, seen.data(), end - seen.begin(), bias.of(row, head, r),
                     seen.data());
        }
      }
    }
    groups.finish();
  }

  // The result of a query that sees no keys: with a query of zeros all keys have the same weight.
  template <typename Stored>
  void attend_to_all(const Memory<Stored>& memory, float* out, const std::vector<int64_t>& every,
                     float* scratch) const {
    const std::vector<float> zeros(static_cast<size_t>(memory.key_depth));
    const int64_t count = static_cast<int64_t>(every.size());
    Memory<Stored> by_rows = memory;
    by_rows.panels = nullptr;
    Groups<Stored> group(routines, by_rows, count, scratch);
    group.add(zeros.data(), out, every.data(), count, nullptr, nullptr);
    group.finish();
  }

  AttendAttributes attributes;
  bool causal;
  const StepRoutines& routines = step_routines();
};

// Copies inputs as float16; values out of range become the largest float16.
struct Narrow : Kernel {
  explicit Narrow(const Attributes&) {}

  void run(const Context& context) override {
    const Value& input = context.input(0);
    const Shape shape = input.shape;
    const int64_t count = product(shape, 0, shape.size());
    const float* values = input.as<float>();
    auto* halves = context.output<uint16_t>(0, shape);
    constexpr int64_t TOGETHER = 64 * 1024;
    parallel(context, static_cast<size_t>(ceil_div(count, TOGETHER)), [&](size_t i) {
      const int64_t first = static_cast<int64_t>(i) * TOGETHER;
      step_routines().narrow(values + first, std::min(TOGETHER, count - first), halves + first);
    });
  }
};

// Quantizes each row of the last axis to int8, after its scale.
struct QuantizeRows : Kernel {
  explicit QuantizeRows(const Attributes&) {}

  void run(const Context& context) override {
    const Value& input = context.input(0);
    Shape shape = input.shape;
    constexpr int64_t MOST = int64_t{1} << 31;
    require(!shape.empty(), "what has no axis has no rows");
    require(shape.back() >= 1 && shape.back() <= MOST, "rows to quantize have 1 to 2,147,483,648 numbers");
    const int64_t rows = product(shape, 0, shape.size() - 1), depth = shape.back();
    shape.back() += BEFORE<int8_t>;
    const float* values = input.as<float>();
    auto* quantized = context.output<int8_t>(0, shape);
    const int64_t together = std::max<int64_t>(1, 64 * 1024 / (depth + 1));
    parallel(context, static_cast<size_t>(ceil_div(rows, together)), [&](size_t i) {
      const int64_t first = static_cast<int64_t>(i) * together, end = std::min(rows, first + together);
      for (int64_t row = first; row < end; ++row) {
        step_routines().quantize(values + row * depth, depth, quantized + row * shape.back());
      }
    });
  }
};

}  // namespace

const StepRoutines& step_routines() {
#if defined(__x86_64__)
  if (routines().width == 16) return STEP_AVX512;
  if (routines().width == 8) return STEP_AVX2;
#elif defined(__aarch64__)
  if (routines().width == 8) return STEP_NEON;
#endif
  return STEP_PORTABLE;
}

void add_attention(Operators& all) {
  static const Operator attend("Attend", make_kernel<Attend>, {FLOAT, ANY, ANY, BOOL, INT64, FLOAT}, {FLOAT}, 3);
  static const Operator narrow("Narrow", make_kernel<Narrow>, {FLOAT}, {FLOAT16});
  all.push_back(&attend);
  all.push_back(&narrow);
  static const Operator quantize("QuantizeRows", make_kernel<QuantizeRows>, {FLOAT}, {INT8});
  all.push_back(&quantize);
  add_cached_attention(all);
}

}  // namespace xformc
