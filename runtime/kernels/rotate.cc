// Rotate (docs/kernels.md): pairs of numbers turned by angles.
#include <algorithm>

#include "kernel.h"

namespace xformc {
namespace {

constexpr int64_t TOGETHER = 16 * 1024;  // numbers that one thread computes at a time

// Where the rows of a tensor of fewer axes, or of axes of size 1, lie for each row of another one: as in numpy.
class Broadcast {
 public:
  // `shape` and `rows` are without the last axis of their tensors.
  Broadcast(const Shape& shape, const Shape& rows) : rows_(rows) {
    require(shape.size() <= rows.size(), "the angles have more axes than x");
    int64_t step = 1;
    for (size_t axis = rows.size(); axis-- > 0;) {
      const size_t missing = rows.size() - shape.size();
      const int64_t size = axis < missing ? 1 : shape[axis - missing];
      require(size == 1 || size == rows[axis], "the axes of the angles do not fit those of x");
      steps_[axis] = size == 1 ? 0 : step;
      step = times(step, size);
    }
  }

  int64_t of(int64_t row) const {
    int64_t place = 0;
    for (size_t axis = rows_.size(); axis-- > 0;) {
      place += row % rows_[axis] * steps_[axis];
      row /= rows_[axis];
    }
    return place;
  }

 private:
  Shape rows_;
  int64_t steps_[Shape::MOST_AXES];
};

Shape without_last(const Shape& shape) { return Shape(shape.begin(), shape.end() - 1); }

struct Rotate : Kernel {
  explicit Rotate(const Attributes& attributes) : halves(attributes.integer("halves") != 0) {}

  void run(const Context& context) override {
    const Value x = context.input(0), cos = context.input(1), sin = context.input(2);
    require(!x.shape.empty() && !cos.shape.empty(), "Rotate: x and the angles have at least one axis");
    require(cos.shape == sin.shape, "Rotate: there are as many sines as cosines");
    const int64_t width = x.shape.back(), half = cos.shape.back();
    require(half <= width / 2, "Rotate: there are more angles than pairs");
    const Shape leading = without_last(x.shape);
    const Broadcast angles(without_last(cos.shape), leading);
    const int64_t rows = product(leading, 0, leading.size());
    float* y = context.output<float>(0, x.shape);
    if (rows == 0 || width == 0) return;
    const int64_t together = std::max<int64_t>(1, TOGETHER / width);
    parallel(context, static_cast<size_t>(ceil_div(rows, together)), [&](size_t i) {
      const int64_t first = static_cast<int64_t>(i) * together, last = std::min(rows, first + together);
      for (int64_t row = first; row < last; ++row) {
        const int64_t place = angles.of(row) * half;
        const float *from = x.as<float>() + row * width, *cosines = cos.as<float>() + place;
        const auto turned = halves ? turn<true> : turn<false>;
        turned(from, cosines, sin.as<float>() + place, half, y + row * width);
        std::copy(from + 2 * half, from + width, y + row * width + 2 * half);
      }
    });
  }

 private:
  template <bool halves>
  static void turn(const float* x, const float* cos, const float* sin, int64_t half, float* y) {
    const int64_t apart = halves ? half : 1, step = halves ? 1 : 2;
    for (int64_t i = 0; i < half; ++i) {
      const float first = x[i * step], second = x[i * step + apart];
      y[i * step] = first * cos[i] - second * sin[i];
      y[i * step + apart] = second * cos[i] + first * sin[i];
    }
  }

  bool halves;
};

}  // namespace

void add_rotate(Operators& all) {
  static const Operator rotate("Rotate", make_kernel<Rotate>, {FLOAT, FLOAT, FLOAT}, {FLOAT});
  all.push_back(&rotate);
}

}  // namespace xformc
