// Operators of ONNX itself, as nodes of a Sequence or a While (docs/kernels.md): those around a search, whose tensors are
// small. They compute what ONNX Runtime's do, to the bit, but for sines and cosines.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <numeric>

#include "attend.h"
#include "kernel.h"

namespace xformc {
namespace {

constexpr int64_t LARGEST = int64_t{1} << 40;  // numbers of a tensor: sums and products of a few stay in range

constexpr int64_t TOGETHER = 1 << 15;  // numbers that one thread computes at a time

// For each axis of a tensor, how many numbers one step along it is; 0 repeats a number.
using Steps = std::array<int64_t, Shape::MOST_AXES>;

Steps steps_of(const Shape& shape) {
  Steps steps{};
  int64_t step = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    steps[axis] = step;
    step = times(step, shape[axis]);
  }
  return steps;
}

// Those with which a tensor is read as one of more axes, or with longer ones in place of its axes of size 1.
Steps steps_as(const Shape& from, const Shape& shape) {
  require(from.size() <= shape.size(), "a tensor has more axes than it is read with");
  const Steps own = steps_of(from);
  Steps steps{};
  const size_t more = shape.size() - from.size();
  for (size_t axis = 0; axis < from.size(); ++axis) {
    require(from[axis] == 1 || from[axis] == shape[more + axis], "the axes of two tensors do not fit");
    steps[more + axis] = from[axis] == 1 ? 0 : own[axis];
  }
  return steps;
}

int64_t count_of(const Shape& shape) {
  for (const int64_t size : shape) require(size >= 0 && size <= LARGEST, "a size is negative or too large");
  const int64_t count = product(shape, 0, shape.size());
  require(count <= LARGEST, "the sizes are too large");
  return count;
}

// Calls row(places, count, steps) for each row of the last axis: where it begins in each of N tensors, its size, and the
// steps along it.
template <size_t N, typename Row>
void walk(const Shape& shape, const std::array<Steps, N>& steps, const Row& row) {
  if (count_of(shape) == 0) return;
  std::array<int64_t, N> places{}, along{};
  if (shape.empty()) return row(places, int64_t{1}, along);
  const size_t last = shape.size() - 1;
  for (size_t i = 0; i < N; ++i) along[i] = steps[i][last];
  Steps index{};
  for (;;) {
    row(places, shape[last], along);
    size_t axis = last;
    for (;; --axis) {
      if (axis == 0) return;
      const size_t outer = axis - 1;
      for (size_t i = 0; i < N; ++i) places[i] += steps[i][outer];
      if (++index[outer] < shape[outer]) break;
      for (size_t i = 0; i < N; ++i) places[i] -= steps[i][outer] * shape[outer];
      index[outer] = 0;
    }
  }
}

// The same for rows that may be visited in any order, on several threads if there are many numbers.
template <size_t N, typename Row>
void walk_apart(const Context& context, const Shape& shape, const std::array<Steps, N>& steps, const Row& row) {
  const int64_t count = count_of(shape);
  size_t axis = 0;
  while (axis < shape.size() && shape[axis] == 1) ++axis;
  if (count <= TOGETHER || axis == shape.size()) return walk<N>(shape, steps, row);
  const int64_t size = shape[axis], parts = std::min(size, ceil_div(count, TOGETHER));
  parallel(context, static_cast<size_t>(parts), [&](size_t i) {
    const int64_t part = static_cast<int64_t>(i), first = size / parts * part + std::min(part, size % parts);
    Shape own = shape;
    own.data()[axis] = size / parts + (part < size % parts);
    walk<N>(own, steps, [&](std::array<int64_t, N> places, int64_t numbers, const auto& along) {
      for (size_t k = 0; k < N; ++k) places[k] += first * steps[k][axis];
      row(places, numbers, along);
    });
  });
}

// Calls f with a number of this size, for moves that do not depend on what the numbers are.
template <typename F>
void by_size(Element type, const F& f) {
  switch (size_of(type)) {
    case 1: return f(uint8_t{});
    case 2: return f(uint16_t{});
    case 4: return f(uint32_t{});
    default: return f(uint64_t{});
  }
}

// Copies numbers from one tensor to another, with the steps along each axis of `shape` in both.
void move(const Context& context, Element type, const Shape& shape, const void* from, const Steps& from_steps, void* to,
          const Steps& to_steps) {
  by_size(type, [&](auto sized) {
    using T = decltype(sized);
    walk_apart<2>(context, shape, {from_steps, to_steps}, [&](const auto& places, int64_t count, const auto& along) {
      const T* source = static_cast<const T*>(from) + places[0];
      T* target = static_cast<T*>(to) + places[1];
      for (int64_t i = 0; i < count; ++i) target[i * along[1]] = source[i * along[0]];
    });
  });
}

const Value& needed(const Context& context, size_t index) {
  const Value& value = context.input(index);
  if (!value) fail("input " + std::to_string(index) + " is missing");
  return value;
}

// The numbers of an input of int64, or none.
struct Integers {
  Integers() = default;
  Integers(const Context& context, size_t index) {
    const Value& value = needed(context, index);
    require(value.type == INT64, "an input that is to be int64 is not");
    first = value.as<int64_t>();
    count = static_cast<size_t>(value.count());
  }
  size_t size() const { return count; }
  bool empty() const { return count == 0; }
  int64_t operator[](size_t i) const { return first[i]; }
  const int64_t* begin() const { return first; }
  const int64_t* end() const { return first + count; }

  const int64_t* first = nullptr;
  size_t count = 0;
};

size_t axis_of(int64_t axis, size_t axes) {
  const int64_t all = static_cast<int64_t>(axes);
  require(axis >= -all && axis < all, "there is no such axis");
  return static_cast<size_t>(axis < 0 ? axis + all : axis);
}

int64_t place_of(int64_t index, int64_t size) {
  require(index >= -size && index < size, "an index is out of range");
  return index < 0 ? index + size : index;
}

void copy_to(const Context& context, const Value& value, const Shape& shape) {
  require(count_of(shape) == value.count(), "the sizes do not fit");
  char* result = static_cast<char*>(context.make_output(0, shape, value.type));
  std::copy_n(static_cast<const char*>(value.data), value.count() * size_of(value.type), result);
}

// -- Number by number ------------------------------------------------------------------------------------------------

Shape broadcast(const Shape& a, const Shape& b) {
  Shape shape = a.size() >= b.size() ? a : b;
  const Shape& other = a.size() >= b.size() ? b : a;
  for (size_t axis = 0; axis < other.size(); ++axis) {
    int64_t& size = shape.data()[shape.size() - other.size() + axis];
    if (size == 1) size = other[axis];
  }
  return shape;
}

template <typename T, typename R, typename F>
void combine(const Context& context, const F& f) {
  const Value &a = context.input(0), &b = context.input(1);
  const Shape shape = broadcast(a.shape, b.shape);
  const Steps first = steps_as(a.shape, shape), second = steps_as(b.shape, shape);
  count_of(shape);
  R* result = static_cast<R*>(context.make_output(0, shape, ELEMENT_OF<R>));
  walk_apart<3>(context, shape, {first, second, steps_of(shape)},
                [&](const auto& places, int64_t count, const auto& along) {
                  const T *x = a.as<T>() + places[0], *y = b.as<T>() + places[1];
                  R* to = result + places[2];
                  if (along[0] == 1 && along[1] == 1) {
                    for (int64_t i = 0; i < count; ++i) to[i] = f(x[i], y[i]);
                  } else {
                    for (int64_t i = 0; i < count; ++i) to[i] = f(x[i * along[0]], y[i * along[1]]);
                  }
                });
}

// Integers wrap around.
struct Sum {
  float operator()(float a, float b) const { return a + b; }
  int64_t operator()(int64_t a, int64_t b) const {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
};
struct Difference {
  float operator()(float a, float b) const { return a - b; }
  int64_t operator()(int64_t a, int64_t b) const {
    return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
  }
};
struct Product {
  float operator()(float a, float b) const { return a * b; }
  int64_t operator()(int64_t a, int64_t b) const {
    return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
};
struct Quotient {
  float operator()(float a, float b) const { return a / b; }
  int64_t operator()(int64_t a, int64_t b) const {
    require(b != 0, "a division by 0");
    return b == -1 ? Difference()(0, a) : a / b;
  }
};
// The rest has the sign of the divisor.
struct Rest {
  int64_t operator()(int64_t a, int64_t b) const {
    require(b != 0, "a division by 0");
    const int64_t rest = b == -1 ? 0 : a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
};
struct Larger {
  template <typename T>
  T operator()(T a, T b) const {
    return a < b || b != b ? b : a;
  }
};
struct Smaller {
  template <typename T>
  T operator()(T a, T b) const {
    return b < a || b != b ? b : a;
  }
};

Element common_type(const Context& context) {
  const Element type = needed(context, 0).type;
  require(context.input_count() == 2 && needed(context, 1).type == type, "there must be two inputs of one type");
  return type;
}

template <typename F, bool floats = true>
struct Arithmetic : Kernel {
  explicit Arithmetic(const Attributes&) {}
  void run(const Context& context) override {
    const Element type = common_type(context);
    if constexpr (floats) {
      if (type == FLOAT) return combine<float, float>(context, F());
    }
    require(type == INT64, "the inputs have a type that is not known here");
    combine<int64_t, int64_t>(context, F());
  }
};

template <typename F>
struct Comparison : Kernel {
  explicit Comparison(const Attributes&) {}
  void run(const Context& context) override {
    switch (common_type(context)) {
      case FLOAT: return combine<float, bool>(context, F());
      case INT64: return combine<int64_t, bool>(context, F());
      case BOOL: return combine<uint8_t, bool>(context, F());
      default: fail("the inputs have a type that is not known here");
    }
  }
};

template <typename F>
struct Logic : Kernel {
  explicit Logic(const Attributes&) {}
  void run(const Context& context) override {
    require(common_type(context) == BOOL, "the inputs are not bool");
    combine<uint8_t, bool>(context, F());
  }
};

template <typename T, typename R, typename F>
void map(const Context& context, const F& f) {
  const Value& x = needed(context, 0);
  R* result = static_cast<R*>(context.make_output(0, x.shape, ELEMENT_OF<R>));
  std::transform(x.as<T>(), x.as<T>() + x.count(), result, f);
}

struct Not : Kernel {
  explicit Not(const Attributes&) {}
  void run(const Context& context) override {
    require(needed(context, 0).type == BOOL, "the input is not bool");
    map<uint8_t, bool>(context, [](uint8_t one) { return one == 0; });
  }
};

template <typename F, bool integers = true>
struct Each : Kernel {
  explicit Each(const Attributes&) {}
  void run(const Context& context) override {
    const Element type = needed(context, 0).type;
    if constexpr (integers) {
      if (type == INT64) return map<int64_t, int64_t>(context, F());
    }
    require(type == FLOAT, "the input has a type that is not known here");
    map<float, float>(context, F());
  }
};

struct Down {
  float operator()(float one) const { return std::floor(one); }
};
struct Negative {
  float operator()(float one) const { return -one; }
  int64_t operator()(int64_t one) const { return Difference()(int64_t{0}, one); }
};
struct Magnitude {
  float operator()(float one) const { return std::fabs(one); }
  int64_t operator()(int64_t one) const { return one < 0 ? Negative()(one) : one; }
};

struct Clip : Kernel {
  explicit Clip(const Attributes&) {}
  void run(const Context& context) override {
    const Element type = needed(context, 0).type;
    require(needed(context, 1).type == type && needed(context, 2).type == type, "Clip takes three inputs of one type");
    if (type == FLOAT) return of<float>(context);
    require(type == INT64, "the input has a type that is not known here");
    of<int64_t>(context);
  }

 private:
  template <typename T>
  void of(const Context& context) {
    const T least = single<T>(context, 1), most = single<T>(context, 2);
    map<T, T>(context, [=](T one) { return one < least ? least : one > most ? most : one; });
  }
};

template <int64_t quarters>
struct Wave : Kernel {
  explicit Wave(const Attributes&) {}
  void run(const Context& context) override {
    const Value& x = needed(context, 0);
    require(x.type == FLOAT, "the input has a type that is not known here");
    float* results = static_cast<float*>(context.make_output(0, x.shape, FLOAT));
    const int64_t count = x.count();
    parallel(context, static_cast<size_t>(ceil_div(count, TOGETHER)), [&](size_t i) {
      const int64_t first = static_cast<int64_t>(i) * TOGETHER;
      step_routines().waves(x.as<float>() + first, std::min(TOGETHER, count - first), quarters, results + first);
    });
  }
};

struct Cast : Kernel {
  explicit Cast(const Attributes& attributes) : to(attributes.integer("to")) {}
  void run(const Context& context) override {
    const Value& x = needed(context, 0);
    switch (x.type) {
      case FLOAT: return of<float>(context);
      case INT64: return of<int64_t>(context);
      case INT32: return of<int32_t>(context);
      case BOOL: return of<uint8_t>(context);
      default: fail("the input has a type that is not known here");
    }
  }

 private:
  template <typename T>
  void of(const Context& context) {
    switch (to) {
      case FLOAT: return map<T, float>(context, [](T one) { return static_cast<float>(one); });
      case INT64: return map<T, int64_t>(context, integer<T, int64_t>);
      case INT32: return map<T, int32_t>(context, integer<T, int32_t>);
      case BOOL: return map<T, bool>(context, [](T one) { return one != T{}; });
      default: fail("the type of the result is not known here");
    }
  }

  // A float beyond the integers becomes the least one, as x86 has it.
  template <typename T, typename R>
  static R integer(T one) {
    if constexpr (std::is_same_v<T, float>) {
      const float end = -static_cast<float>(std::numeric_limits<R>::min());
      return one >= -end && one < end ? static_cast<R>(one) : std::numeric_limits<R>::min();
    } else {
      return static_cast<R>(one);
    }
  }

  int64_t to;
};

struct Where : Kernel {
  explicit Where(const Attributes&) {}
  void run(const Context& context) override {
    const Value &condition = needed(context, 0), &a = needed(context, 1), &b = needed(context, 2);
    require(condition.type == BOOL && a.type == b.type, "Where takes bool, and two inputs of one type");
    const Shape shape = broadcast(broadcast(condition.shape, a.shape), b.shape);
    const std::array<Steps, 4> steps{steps_as(condition.shape, shape), steps_as(a.shape, shape),
                                     steps_as(b.shape, shape), steps_of(shape)};
    count_of(shape);
    void* result = context.make_output(0, shape, a.type);
    by_size(a.type, [&](auto sized) {
      using T = decltype(sized);
      walk_apart<4>(context, shape, steps, [&](const auto& places, int64_t count, const auto& along) {
        const uint8_t* is = condition.as<uint8_t>() + places[0];
        const T *x = a.as<T>() + places[1], *y = b.as<T>() + places[2];
        T* to = static_cast<T*>(result) + places[3];
        for (int64_t i = 0; i < count; ++i) to[i] = is[i * along[0]] != 0 ? x[i * along[1]] : y[i * along[2]];
      });
    });
  }
};

// -- Shapes ----------------------------------------------------------------------------------------------------------

struct Identity : Kernel {
  explicit Identity(const Attributes&) {}
  void run(const Context& context) override { copy_to(context, needed(context, 0), context.input(0).shape); }
};

struct ShapeOf : Kernel {
  explicit ShapeOf(const Attributes& attributes)
      : start(attributes.integer_or("start", 0)), end(attributes.integer_or("end", Shape::MOST_AXES)) {}
  void run(const Context& context) override {
    const Shape& shape = needed(context, 0).shape;
    const int64_t axes = static_cast<int64_t>(shape.size());
    const auto bound = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + axes : at, 0, axes); };
    const int64_t first = bound(start), count = std::max<int64_t>(0, bound(end) - first);
    int64_t* sizes = static_cast<int64_t*>(context.make_output(0, {count}, INT64));
    std::copy_n(shape.begin() + first, count, sizes);
  }

 private:
  int64_t start, end;
};

struct Size : Kernel {
  explicit Size(const Attributes&) {}
  void run(const Context& context) override {
    *static_cast<int64_t*>(context.make_output(0, {}, INT64)) = needed(context, 0).count();
  }
};

// Which axes of so many are listed.
std::array<bool, Shape::MOST_AXES> listed(const Integers& axes, size_t count) {
  std::array<bool, Shape::MOST_AXES> is{};
  require(count <= is.size(), "a tensor has more than 16 axes");
  for (const int64_t axis : axes) is[axis_of(axis, count)] = true;
  return is;
}

struct Squeeze : Kernel {
  explicit Squeeze(const Attributes&) {}
  void run(const Context& context) override {
    const Value& x = needed(context, 0);
    const Integers axes = context.input(1) ? Integers(context, 1) : Integers();
    const auto gone = listed(axes, x.shape.size());
    Shape shape;
    for (size_t axis = 0; axis < x.shape.size(); ++axis) {
      if (axes.empty() ? x.shape[axis] != 1 : !gone[axis]) shape.push_back(x.shape[axis]);
    }
    copy_to(context, x, shape);
  }
};

struct Unsqueeze : Kernel {
  explicit Unsqueeze(const Attributes&) {}
  void run(const Context& context) override {
    const Value& x = needed(context, 0);
    const Integers axes(context, 1);
    require(axes.size() <= Shape::MOST_AXES, "a tensor has more than 16 axes");
    const size_t count = x.shape.size() + axes.size();
    const auto added = listed(axes, count);
    Shape shape;
    size_t next = 0;
    for (size_t axis = 0; axis < count; ++axis) {
      require(added[axis] || next < x.shape.size(), "an axis is added twice");
      shape.push_back(added[axis] ? 1 : x.shape[next++]);
    }
    copy_to(context, x, shape);
  }
};

struct Reshape : Kernel {
  explicit Reshape(const Attributes&) {}
  void run(const Context& context) override {
    const Value& x = needed(context, 0);
    const Integers wanted(context, 1);
    Shape shape;
    int64_t known = 1;
    size_t open = SIZE_MAX;
    for (size_t axis = 0; axis < wanted.size(); ++axis) {
      const int64_t size = wanted[axis] == 0 ? x.shape.at(axis) : wanted[axis];
      shape.push_back(size);
      if (size == -1) {
        require(open == SIZE_MAX, "two sizes are open");
        open = axis;
      } else {
        require(size >= 0, "a size is negative");
        known = times(known, size);
      }
    }
    if (open != SIZE_MAX) {
      require(known > 0, "a size cannot be found");
      shape.data()[open] = x.count() / known;
    }
    copy_to(context, x, shape);
  }
};

struct Transpose : Kernel {
  explicit Transpose(const Attributes& attributes) : order(attributes.integers("perm")) {}
  void run(const Context& context) override {
    const Value& x = needed(context, 0);
    require(order.size() == x.shape.size(), "the order has another number of axes");
    const Steps own = steps_of(x.shape);
    Steps steps{};
    Shape shape;
    std::array<bool, Shape::MOST_AXES> taken{};
    for (size_t axis = 0; axis < order.size(); ++axis) {
      const size_t from = axis_of(order[axis], order.size());
      require(!taken[from], "an axis occurs twice");
      taken[from] = true;
      shape.push_back(x.shape[from]);
      steps[axis] = own[from];
    }
    move(context, x.type, shape, x.data, steps, context.make_output(0, shape, x.type), steps_of(shape));
  }

 private:
  std::vector<int64_t> order;
};

struct Expand : Kernel {
  explicit Expand(const Attributes&) {}
  void run(const Context& context) override {
    const Value& x = needed(context, 0);
    Shape wanted;
    for (const int64_t size : Integers(context, 1)) wanted.push_back(size);
    const Shape shape = broadcast(x.shape, wanted);
    const Steps steps = steps_as(x.shape, shape);
    count_of(shape);
    move(context, x.type, shape, x.data, steps, context.make_output(0, shape, x.type), steps_of(shape));
  }
};

struct Range : Kernel {
  explicit Range(const Attributes&) {}
  void run(const Context& context) override {
    for (size_t i = 0; i < 3; ++i) require(needed(context, i).type == INT64, "Range takes int64");
    const int64_t start = single<int64_t>(context, 0), end = single<int64_t>(context, 1);
    const int64_t step = single<int64_t>(context, 2);
    for (const int64_t one : {start, end, step}) require(one > -LARGEST && one < LARGEST, "Range goes too far");
    require(step != 0, "Range has no step");
    const int64_t way = step > 0 ? end - start : start - end;
    const int64_t count = way <= 0 ? 0 : ceil_div(way, std::abs(step));
    int64_t* numbers = static_cast<int64_t*>(context.make_output(0, {count}, INT64));
    for (int64_t i = 0; i < count; ++i) numbers[i] = start + i * step;
  }
};

// -- Parts -----------------------------------------------------------------------------------------------------------

// A part that is empty along the axis may have other sizes along the others.
struct Concat : Kernel {
  explicit Concat(const Attributes& attributes) : along(attributes.integer("axis")) {}
  void run(const Context& context) override {
    const Value* first = &needed(context, 0);
    const size_t axis = axis_of(along, first->shape.size());
    int64_t total = 0;
    for (size_t i = 0; i < context.input_count(); ++i) {
      const Value& part = needed(context, i);
      require(part.type == first->type && part.shape.size() == first->shape.size(), "the parts differ in type or axes");
      if (first->shape[axis] == 0) first = &part;
      require(part.shape[axis] <= LARGEST - total, "the sizes are too large");
      total += part.shape[axis];
    }
    Shape shape = first->shape;
    shape.data()[axis] = total;
    count_of(shape);
    char* result = static_cast<char*>(context.make_output(0, shape, first->type));
    if (count_of(shape) == 0) return;
    const int64_t outer = product(shape, 0, axis), inner = product(shape, axis + 1, shape.size());
    const int64_t size = size_of(first->type);
    for (size_t i = 0; i < context.input_count(); ++i) {
      const Value& part = context.input(i);
      if (part.shape[axis] == 0) continue;
      for (size_t other = 0; other < shape.size(); ++other) {
        require(other == axis || part.shape[other] == shape[other], "the parts differ in an axis");
      }
      const int64_t numbers = part.shape[axis] * inner, bytes = numbers * size;
      if (numbers == 1) {
        move(context, first->type, Shape{outer}, part.data, Steps{1}, result, Steps{total * inner});
      } else {
        for (int64_t row = 0; row < outer; ++row) {
          std::copy_n(static_cast<const char*>(part.data) + row * bytes, bytes, result + row * total * inner * size);
        }
      }
      result += bytes;
    }
  }

 private:
  int64_t along;
};

struct Slice : Kernel {
  explicit Slice(const Attributes&) {}
  void run(const Context& context) override {
    const Value& x = needed(context, 0);
    const Integers starts(context, 1), ends(context, 2), axes(context, 3);
    require(starts.size() == ends.size() && starts.size() == axes.size() && !context.input(4),
            "Slice takes as many starts, ends and axes, and no steps");
    Shape shape = x.shape;
    const Steps steps = steps_of(x.shape);
    std::array<bool, Shape::MOST_AXES> is_cut{};
    Steps starting{};
    for (size_t i = 0; i < axes.size(); ++i) {
      const size_t axis = axis_of(axes[i], x.shape.size());
      require(!is_cut[axis], "an axis is cut twice");
      is_cut[axis] = true;
      const int64_t size = x.shape[axis];
      const auto bound = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
      const int64_t start = bound(starts[i]);
      shape.data()[axis] = std::max<int64_t>(0, bound(ends[i]) - start);
      starting[axis] = start;
    }
    void* result = context.make_output(0, shape, x.type);
    if (count_of(shape) == 0) return;
    int64_t place = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis) place += starting[axis] * steps[axis];
    const char* from = static_cast<const char*>(x.data) + place * size_of(x.type);
    move(context, x.type, shape, from, steps, result, steps_of(shape));
  }
};

// Fewer than no numbers before or after x are numbers of x that are left out.
struct Pad : Kernel {
  explicit Pad(const Attributes&) {}
  void run(const Context& context) override {
    const Value &x = needed(context, 0), &given = context.input(2);
    const Integers pads(context, 1);
    const size_t axes = x.shape.size();
    require(!context.input(3) && pads.size() == 2 * axes, "Pad takes two numbers for each axis");
    require(!given || (given.type == x.type && given.count() == 1), "Pad takes one number of the type of x");
    Shape shape = x.shape, kept = x.shape;
    count_of(shape);
    for (size_t axis = 0; axis < axes; ++axis) {
      const int64_t before = pads[axis], after = pads[axes + axis];
      require(std::max(before, after) <= LARGEST && std::min(before, after) >= -x.shape[axis], "Pad goes too far");
      shape.data()[axis] += before + after;
      kept.data()[axis] += std::min<int64_t>(0, before) + std::min<int64_t>(0, after);
      require(kept[axis] >= 0, "Pad leaves out more than there is");
    }
    const int64_t count = count_of(shape);
    const Steps steps = steps_of(shape), own = steps_of(x.shape);
    int64_t from = 0, to = 0;
    for (size_t axis = 0; axis < axes; ++axis) {
      from += std::max<int64_t>(0, -pads[axis]) * own[axis];
      to += std::max<int64_t>(0, pads[axis]) * steps[axis];
    }
    char* result = static_cast<char*>(context.make_output(0, shape, x.type));
    by_size(x.type, [&](auto sized) {
      using T = decltype(sized);
      std::fill_n(reinterpret_cast<T*>(result), count, given ? *given.as<T>() : T{0});
    });
    const int64_t size = size_of(x.type);
    move(context, x.type, kept, static_cast<const char*>(x.data) + from * size, own, result + to * size, steps);
  }
};

struct Gather : Kernel {
  explicit Gather(const Attributes& attributes) : along(attributes.integer_or("axis", 0)) {}
  void run(const Context& context) override {
    const Value &x = needed(context, 0), &indices = needed(context, 1);
    require(indices.type == INT64, "the indices are not int64");
    const size_t axis = axis_of(along, x.shape.size());
    Shape shape(x.shape.begin(), x.shape.begin() + axis);
    shape.append(indices.shape.begin(), indices.shape.end());
    shape.append(x.shape.begin() + axis + 1, x.shape.end());
    count_of(shape);
    const int64_t outer = product(x.shape, 0, axis), size = x.shape[axis], count = indices.count();
    const int64_t bytes = times(product(x.shape, axis + 1, x.shape.size()), size_of(x.type));
    for (int64_t i = 0; i < count; ++i) place_of(indices.as<int64_t>()[i], size);
    char* result = static_cast<char*>(context.make_output(0, shape, x.type));
    if (count_of(shape) == 0) return;
    const char* from = static_cast<const char*>(x.data);
    for (int64_t row = 0; row < outer; ++row) {
      for (int64_t i = 0; i < count; ++i, result += bytes) {
        const int64_t place = row * size + place_of(indices.as<int64_t>()[i], size);
        std::copy_n(from + place * bytes, bytes, result);
      }
    }
  }

 private:
  int64_t along;
};

struct GatherElements : Kernel {
  explicit GatherElements(const Attributes& attributes) : along(attributes.integer_or("axis", 0)) {}
  void run(const Context& context) override {
    const Value &x = needed(context, 0), &indices = needed(context, 1);
    require(indices.type == INT64 && indices.shape.size() == x.shape.size(), "the indices do not fit");
    const size_t axis = axis_of(along, x.shape.size());
    const Shape& shape = indices.shape;
    Steps steps = steps_of(x.shape);
    for (size_t other = 0; other < shape.size(); ++other) {
      require(other == axis || shape[other] <= x.shape[other], "there are more indices than numbers");
    }
    const int64_t step = steps[axis], size = x.shape[axis];
    steps[axis] = 0;
    void* result = context.make_output(0, shape, x.type);
    by_size(x.type, [&](auto sized) {
      using T = decltype(sized);
      walk_apart<2>(context, shape, {steps, steps_of(shape)},
                    [&](const auto& places, int64_t count, const auto& ahead) {
                      for (int64_t i = 0; i < count; ++i) {
                        const int64_t at = place_of(indices.as<int64_t>()[places[1] + i], size);
                        static_cast<T*>(result)[places[1] + i] = x.as<T>()[places[0] + i * ahead[0] + at * step];
                      }
                    });
    });
  }

 private:
  int64_t along;
};

struct ScatterND : Kernel {
  explicit ScatterND(const Attributes&) {}
  void run(const Context& context) override {
    const Value &x = needed(context, 0), &indices = needed(context, 1), &updates = needed(context, 2);
    require(indices.type == INT64 && updates.type == x.type && !indices.shape.empty(), "the inputs do not fit");
    const size_t depth = static_cast<size_t>(std::clamp<int64_t>(indices.shape.back(), 0, Shape::MOST_AXES + 1));
    require(depth <= x.shape.size(), "the indices have too many numbers");
    const int64_t rows = product(indices.shape, 0, indices.shape.size() - 1);
    Shape shape(indices.shape.begin(), indices.shape.end() - 1);
    shape.append(x.shape.begin() + depth, x.shape.end());
    require(updates.shape == shape, "the updates do not fit");
    const Steps steps = steps_of(x.shape);
    const int64_t bytes = times(product(x.shape, depth, x.shape.size()), size_of(x.type));
    char* result = static_cast<char*>(context.make_output(0, x.shape, x.type));
    if (count_of(x.shape) == 0) return;
    std::copy_n(static_cast<const char*>(x.data), x.count() * size_of(x.type), result);
    for (int64_t row = 0; row < rows; ++row) {
      int64_t place = 0;
      for (size_t i = 0; i < depth; ++i) {
        place +=
            place_of(indices.as<int64_t>()[row * static_cast<int64_t>(depth) + static_cast<int64_t>(i)], x.shape[i]) *
            steps[i];
      }
      const char* from = static_cast<const char*>(updates.data) + row * bytes;
      std::copy_n(from, bytes, result + place * size_of(x.type));
    }
  }
};

struct NonZero : Kernel {
  explicit NonZero(const Attributes&) {}
  void run(const Context& context) override {
    const Value& x = needed(context, 0);
    require(x.type == BOOL && !x.shape.empty(), "NonZero takes bool");
    const uint8_t* first = x.as<uint8_t>();  // a model may have other bytes than 0 and 1
    const int64_t all = x.count();
    const int64_t count = all - std::count(first, first + all, uint8_t{0});
    const Steps steps = steps_of(x.shape);
    int64_t* to = static_cast<int64_t*>(context.make_output(0, {static_cast<int64_t>(x.shape.size()), count}, INT64));
    for (size_t axis = 0; axis < x.shape.size(); ++axis) {
      for (int64_t i = 0; i < all; ++i) {
        if (first[i] != 0) *to++ = i / steps[axis] % x.shape[axis];
      }
    }
  }
};

// -- Many to one -----------------------------------------------------------------------------------------------------

// Of no numbers, the sum is 0, the largest the least integer, and the least the largest.
template <typename F>
struct Reduce : Kernel {
  explicit Reduce(const Attributes& attributes) : keeps(attributes.integer_or("keepdims", 1) != 0) {}
  void run(const Context& context) override {
    const Value& x = needed(context, 0);
    require(x.type == INT64, "the input is not int64");
    const Integers axes = context.input(1) ? Integers(context, 1) : Integers();
    const auto named = listed(axes, x.shape.size());
    Shape shape, kept;
    for (size_t axis = 0; axis < x.shape.size(); ++axis) {
      const bool gone = axes.empty() || named[axis];
      kept.push_back(gone ? 1 : x.shape[axis]);
      if (!gone || keeps) shape.push_back(gone ? 1 : x.shape[axis]);
    }
    int64_t* result = static_cast<int64_t*>(context.make_output(0, shape, INT64));
    using Bounds = std::numeric_limits<int64_t>;
    const int64_t none = std::is_same_v<F, Sum> ? 0 : std::is_same_v<F, Larger> ? Bounds::min() : Bounds::max();
    std::fill_n(result, count_of(shape), none);
    walk<2>(x.shape, {steps_of(x.shape), steps_as(kept, x.shape)},
            [&](const auto& places, int64_t size, const auto& along) {
              for (int64_t i = 0; i < size; ++i) {
                int64_t& one = result[places[1] + i * along[1]];
                one = F()(one, x.as<int64_t>()[places[0] + i * along[0]]);
              }
            });
  }

 private:
  bool keeps;
};

// Of equal numbers the first ones are chosen; what is no number comes before all.
struct TopK : Kernel {
  explicit TopK(const Attributes& attributes) : along(attributes.integer_or("axis", -1)) {}
  void run(const Context& context) override {
    const Value& x = needed(context, 0);
    require(x.type == FLOAT && context.output_count() == 2, "TopK takes float32 and has two results");
    const size_t axis = axis_of(along, x.shape.size());
    require(axis + 1 == x.shape.size(), "TopK is along another axis than the last");
    require(needed(context, 1).type == INT64, "TopK takes a number of int64");
    const int64_t size = x.shape.back(), count = single<int64_t>(context, 1);
    require(count >= 0 && count <= size, "there are not so many numbers");
    Shape shape = x.shape;
    shape.back() = count;
    float* values = static_cast<float*>(context.make_output(0, shape, FLOAT));
    int64_t* order = static_cast<int64_t*>(context.make_output(1, shape, INT64));
    if (count_of(shape) == 0) return;
    std::vector<int64_t> all(static_cast<size_t>(size));
    for (int64_t row = 0, rows = x.count() / size; row < rows; ++row) {
      const float* from = x.as<float>() + row * size;
      std::iota(all.begin(), all.end(), int64_t{0});
      std::partial_sort(all.begin(), all.begin() + count, all.end(), [from](int64_t a, int64_t b) {
        const bool first = std::isnan(from[a]), second = std::isnan(from[b]);
        if (first != second) return first;
        return from[a] > from[b] || (!(from[b] > from[a]) && a < b);
      });
      for (int64_t i = 0; i < count; ++i, ++values, ++order) {
        *order = all[static_cast<size_t>(i)];
        *values = from[*order];
      }
    }
  }

 private:
  int64_t along;
};

}  // namespace

const Operators& standard_operators() {
  static const Operators all = [] {
    static std::deque<Operator> own;
    Operators found;
    const auto add = [&found](const char* name, Operator::Make make, size_t outputs = 1) {
      found.push_back(&own.emplace_back(name, make, std::vector{ANY}, std::vector(outputs, ANY), SIZE_MAX, true));
    };
    add("onnx.Add", make_kernel<Arithmetic<Sum>>);
    add("onnx.Sub", make_kernel<Arithmetic<Difference>>);
    add("onnx.Mul", make_kernel<Arithmetic<Product>>);
    add("onnx.Div", make_kernel<Arithmetic<Quotient>>);
    add("onnx.Mod", make_kernel<Arithmetic<Rest, false>>);
    add("onnx.Max", make_kernel<Arithmetic<Larger>>);
    add("onnx.Min", make_kernel<Arithmetic<Smaller>>);
    add("onnx.Equal", make_kernel<Comparison<std::equal_to<>>>);
    add("onnx.Less", make_kernel<Comparison<std::less<>>>);
    add("onnx.LessOrEqual", make_kernel<Comparison<std::less_equal<>>>);
    add("onnx.Greater", make_kernel<Comparison<std::greater<>>>);
    add("onnx.GreaterOrEqual", make_kernel<Comparison<std::greater_equal<>>>);
    add("onnx.And", make_kernel<Logic<std::logical_and<>>>);
    add("onnx.Or", make_kernel<Logic<std::logical_or<>>>);
    add("onnx.Not", make_kernel<Not>);
    add("onnx.Floor", make_kernel<Each<Down, false>>);
    add("onnx.Neg", make_kernel<Each<Negative>>);
    add("onnx.Abs", make_kernel<Each<Magnitude>>);
    add("onnx.Clip", make_kernel<Clip>);
    add("onnx.Sin", make_kernel<Wave<0>>);
    add("onnx.Cos", make_kernel<Wave<1>>);
    add("onnx.Cast", make_kernel<Cast>);
    add("onnx.Where", make_kernel<Where>);
    add("onnx.Identity", make_kernel<Identity>);
    add("onnx.Shape", make_kernel<ShapeOf>);
    add("onnx.Size", make_kernel<Size>);
    add("onnx.Squeeze", make_kernel<Squeeze>);
    add("onnx.Unsqueeze", make_kernel<Unsqueeze>);
    add("onnx.Reshape", make_kernel<Reshape>);
    add("onnx.Transpose", make_kernel<Transpose>);
    add("onnx.Expand", make_kernel<Expand>);
    add("onnx.Range", make_kernel<Range>);
    add("onnx.Concat", make_kernel<Concat>);
    add("onnx.Slice", make_kernel<Slice>);
    add("onnx.Pad", make_kernel<Pad>);
    add("onnx.Gather", make_kernel<Gather>);
    add("onnx.GatherElements", make_kernel<GatherElements>);
    add("onnx.ScatterND", make_kernel<ScatterND>);
    add("onnx.NonZero", make_kernel<NonZero>);
    add("onnx.ReduceSum", make_kernel<Reduce<Sum>>);
    add("onnx.ReduceMax", make_kernel<Reduce<Larger>>);
    add("onnx.ReduceMin", make_kernel<Reduce<Smaller>>);
    add("onnx.TopK", make_kernel<TopK>, 2);
    return found;
  }();
  return all;
}

}  // namespace xformc
