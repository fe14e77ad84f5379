// Normalize (docs/kernels.md): rows normalized to variance 1 and perhaps mean 0, with a gain and perhaps an offset.
#include <algorithm>

#include "gemm.h"
#include "kernel.h"

namespace xformc {
namespace {

constexpr int64_t TOGETHER = 16 * 1024;  // numbers that one thread normalizes at a time

struct Normalize : Kernel {
  explicit Normalize(const Attributes& attributes)
      : axes(attributes.integer("axes")), epsilon(attributes.number("epsilon")) {
    const std::string norm = attributes.text("norm");
    require(norm == "layer" || norm == "rms", "Normalize: norm is layer or rms");
    centers = norm == "layer";
    require(axes >= 1, "Normalize: rows have at least one axis");
  }

  void run(const Context& context) override {
    const Value& x = context.input(0);
    require(static_cast<int64_t>(x.shape.size()) >= axes, "Normalize: x has fewer axes than rows have");
    const size_t leading = x.shape.size() - static_cast<size_t>(axes);
    const int64_t rows = product(x.shape, 0, leading), depth = product(x.shape, leading, x.shape.size());
    const float* gain = optional_input<float>(context, 1, depth, "Normalize: gain needs one number for each of a row");
    const float* offset =
        optional_input<float>(context, 2, depth, "Normalize: offset needs one number for each of a row");
    require(gain != nullptr, "Normalize: there is no gain");
    require(centers || offset == nullptr, "Normalize: offset comes with the layer norm");
    float* y = context.output<float>(0, x.shape);
    if (depth == 0) return;
    const int64_t together = std::max<int64_t>(1, TOGETHER / depth);
    parallel(context, static_cast<size_t>(ceil_div(rows, together)), [&](size_t i) {
      const int64_t first = static_cast<int64_t>(i) * together, last = std::min(rows, first + together);
      std::copy(x.as<float>() + first * depth, x.as<float>() + last * depth, y + first * depth);
      for (int64_t row = first; row < last; ++row) {
        if (centers) {
          routines_.layer_norm(y + row * depth, depth, gain, offset, epsilon);
        } else {
          routines_.rms_norm(y + row * depth, depth, gain, epsilon);
        }
      }
    });
  }

 private:
  int64_t axes;  // of a row
  float epsilon;
  bool centers;
  const Routines& routines_ = routines();
};

}  // namespace

void add_normalize(Operators& all) {
  static const Operator normalize("Normalize", make_kernel<Normalize>, {FLOAT, FLOAT, FLOAT}, {FLOAT}, 2);
  all.push_back(&normalize);
}

}  // namespace xformc
