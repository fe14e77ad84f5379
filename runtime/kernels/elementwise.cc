// Add and Multiply (docs/kernels.md): sums and products number by number.
#include <algorithm>
#include <functional>

#include "kernel.h"

namespace xformc {
namespace {

constexpr int64_t TOGETHER = 16 * 1024;  // numbers that one thread computes at a time

template <typename Function>
struct Elementwise : Kernel {
  explicit Elementwise(const Attributes&) {}

  void run(const Context& context) override {
    const Value a = context.input(0), b = context.input(1);
    const size_t missing = a.shape.size() - b.shape.size();
    require(b.shape.size() <= a.shape.size() && std::equal(b.shape.begin(), b.shape.end(), a.shape.begin() + missing),
            "the second input does not have the last axes of the first");
    float* y = context.output<float>(0, a.shape);
    const int64_t count = a.count(), repeated = b.count();
    parallel(context, static_cast<size_t>(ceil_div(count, TOGETHER)), [&](size_t i) {
      const int64_t last = std::min(count, (static_cast<int64_t>(i) + 1) * TOGETHER);
      for (int64_t at = static_cast<int64_t>(i) * TOGETHER; at < last;) {
        const int64_t place = at % repeated, some = std::min(last - at, repeated - place);
        const float* first = a.as<float>() + at;
        std::transform(first, first + some, b.as<float>() + place, y + at, Function());
        at += some;
      }
    });
  }
};

}  // namespace

void add_elementwise(Operators& all) {
  static const Operator add("Add", make_kernel<Elementwise<std::plus<float>>>, {FLOAT, FLOAT}, {FLOAT});
  static const Operator multiply("Multiply", make_kernel<Elementwise<std::multiplies<float>>>, {FLOAT, FLOAT}, {FLOAT});
  all.push_back(&add);
  all.push_back(&multiply);
}

}  // namespace xformc
