// The parts that all operators of docs/kernels.md share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "ort.h"

namespace xformc {

[[noreturn]] inline void fail(const std::string& message) { throw Ort::Exception(message, ORT_INVALID_ARGUMENT); }

inline void require(bool condition, const char* message) {
  if (!condition) fail(message);
}

inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }  // a >= 0, b > 0

// a * b; throws on int64 overflow: attributes may be any number, and an empty tensor may have any axes.
inline int64_t times(int64_t a, int64_t b) {
  int64_t result = 0;
  require(!__builtin_mul_overflow(a, b, &result), "the sizes are too large");
  return result;
}

// The sizes of a tensor's axes. They lie in the object, since every call of an operator makes some.
class Shape {
 public:
  static constexpr size_t MOST_AXES = 16;

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) { append(sizes.begin(), sizes.end()); }
  Shape(const int64_t* first, const int64_t* last) { append(first, last); }
  Shape(const Shape& other) { *this = other; }
  Shape& operator=(const Shape& other) {
    size_ = other.size_;
    std::copy_n(other.sizes_, size_, sizes_);
    return *this;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t* data() { return sizes_; }
  const int64_t* begin() const { return sizes_; }
  const int64_t* end() const { return sizes_ + size_; }
  int64_t operator[](size_t axis) const { return sizes_[axis]; }
  int64_t at(size_t axis) const {
    require(axis < size_, "a tensor has too few axes");
    return sizes_[axis];
  }
  int64_t& back() { return sizes_[size_ - 1]; }
  int64_t back() const { return sizes_[size_ - 1]; }

  void resize(size_t size) {
    require(size <= MOST_AXES, "a tensor has more than 16 axes");
    for (size_t axis = size_; axis < size; ++axis) sizes_[axis] = 0;
    size_ = size;
  }
  void push_back(int64_t size) {
    resize(size_ + 1);
    back() = size;
  }
  void append(const int64_t* first, const int64_t* last) {
    for (; first != last; ++first) push_back(*first);
  }

  bool operator==(const Shape& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }
  bool operator!=(const Shape& other) const { return !(*this == other); }

 private:
  int64_t sizes_[MOST_AXES];
  size_t size_ = 0;
};

inline int64_t product(const Shape& shape, size_t first, size_t last) {
  int64_t result = 1;
  for (size_t i = first; i < last; ++i) result = times(result, shape[i]);
  return result;
}

using Element = ONNXTensorElementDataType;
constexpr Element FLOAT = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
constexpr Element FLOAT16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
constexpr Element INT8 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
constexpr Element INT16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16;
constexpr Element INT32 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
constexpr Element INT64 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
constexpr Element BOOL = ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL;
constexpr Element ANY = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;

template <typename T>
constexpr Element ELEMENT_OF = std::is_same_v<T, float>     ? FLOAT
                               : std::is_same_v<T, bool>    ? BOOL
                               : std::is_same_v<T, int32_t> ? INT32
                                                            : INT64;

inline int64_t size_of(Element type) {
  switch (type) {
    case BOOL:
    case INT8: return 1;
    case FLOAT16:
    case INT16: return 2;
    case FLOAT:
    case INT32: return 4;
    case INT64: return 8;
    default: fail("a tensor has a type that is not known here");
  }
}

// A tensor that an operator reads. One that is left out has no type.
struct Value {
  operator bool() const { return type != ANY; }
  int64_t count() const { return product(shape, 0, shape.size()); }
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data);
  }

  Element type = ANY;
  Shape shape;
  const void* data = nullptr;
};

inline const Value& no_value() {
  static const Value none{};
  return none;
}

// One call of an operator: its inputs, its outputs and its threads.
class Context {
 public:
  explicit Context(const Ort::KernelContext& threads) : threads_(threads) {}
  virtual ~Context() = default;

  virtual size_t input_count() const = 0;
  virtual size_t output_count() const = 0;
  virtual const Value& input(size_t index) const = 0;  // no_value() beyond the last one
  // `type` is that of the output, or ANY for the one that the operator says.
  virtual void* make_output(size_t index, const Shape& shape, Element type) const = 0;

  template <typename T>
  T* output(size_t index, const Shape& shape) const {
    return static_cast<T*>(make_output(index, shape, ANY));
  }
  const Ort::KernelContext& threads() const { return threads_; }

 private:
  const Ort::KernelContext& threads_;
};

// The attributes of a node, or of one of several nodes in it, which have a prefix there.
class Attributes {
 public:
  explicit Attributes(const OrtKernelInfo* info, std::string prefix = "") : info_(info), prefix_(std::move(prefix)) {}

  Attributes behind(const std::string& prefix) const { return Attributes(info_, prefix_ + prefix); }

  float number(const std::string& name) const { return ort().GetAttribute<float>((prefix_ + name).c_str()); }
  int64_t integer(const std::string& name) const { return ort().GetAttribute<int64_t>((prefix_ + name).c_str()); }
  // The attribute, or `otherwise` for a node without it.
  float number_or(const std::string& name, float otherwise) const {
    return ort().GetAttributeOr((prefix_ + name).c_str(), otherwise);
  }
  int64_t integer_or(const std::string& name, int64_t otherwise) const {
    return ort().GetAttributeOr((prefix_ + name).c_str(), otherwise);
  }
  std::vector<int64_t> integers(const std::string& name) const {
    return ort().GetAttributes<int64_t>((prefix_ + name).c_str());
  }
  std::string text(const std::string& name) const { return ort().GetAttribute<std::string>((prefix_ + name).c_str()); }

 private:
  Ort::ConstKernelInfo ort() const { return Ort::ConstKernelInfo(info_); }

  const OrtKernelInfo* info_;
  std::string prefix_;
};

// What an operator made of the attributes of a node.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run(const Context& context) = 0;
};

// Work for several threads. An exception would end the process on a thread of ONNX Runtime's, so the first is kept.
template <typename Work>
struct Caught {
  void operator()(size_t i) noexcept {
    try {
      work(i);
    } catch (...) {
      if (!failed.test_and_set()) failure = std::current_exception();
    }
  }

  const Work& work;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  std::exception_ptr failure = nullptr;
};

// Runs work(i) for i in 0..count-1 on ONNX Runtime's threads, in any order; a free thread takes the next i. Throws what
// one of them threw, after all have ended.
template <typename Work>
void parallel(const Context& context, size_t count, const Work& work) {
  if (count == 1) {
    work(size_t{0});
  } else if (count > 1) {
    Caught<Work> caught{work};
    context.threads().ParallelFor([](void* data, size_t i) { (*static_cast<Caught<Work>*>(data))(i); }, count, count,
                                  &caught);
    if (caught.failure != nullptr) std::rethrow_exception(caught.failure);
  }
}

// The threads that work may be divided among: those of the machine, since nothing says how many a session has.
inline int64_t machine_threads() {
  static const int64_t threads = std::max(1u, std::thread::hardware_concurrency());
  return threads;
}

// The value of an input with one element.
template <typename T>
T single(const Context& context, size_t index) {
  const Value& value = context.input(index);
  if (!value || value.count() != 1) fail("input " + std::to_string(index) + " is not one number");
  return *value.as<T>();
}

// The numbers of an input, of which there must be `count`, or null if it is left out.
template <typename T>
const T* optional_input(const Context& context, size_t index, int64_t count, const char* message) {
  const Value& value = context.input(index);
  if (!value) return nullptr;
  require(value.type == ELEMENT_OF<T> && value.count() == count, message);
  return value.as<T>();
}

// The rows of the options in which the sentences of a step find their own: those of an optional input [batch]; without it
// each sentence has the row of its number.
class Sentences {
 public:
  Sentences(const Context& context, size_t index, int64_t batch)
      : rows_(optional_input<int64_t>(context, index, batch, "there must be a row for each sentence")), batch_(batch) {}

  // The row of a sentence in an option of so many rows: the only one, or its own.
  int64_t row(int64_t sentence, int64_t rows) const {
    return rows == 1 ? 0 : rows_ != nullptr ? rows_[sentence] : sentence;
  }

  // Throws unless an option of so many rows has one for each sentence.
  void check(int64_t rows) const {
    if (rows == 1) return;
    for (int64_t i = 0; i < batch_; ++i) {
      require(row(i, rows) >= 0 && row(i, rows) < rows, "an option lacks the row of a sentence");
    }
  }

 private:
  const int64_t* rows_;
  int64_t batch_;
};

// An option of a search: one number for all sentences, or one for each row of the batch.
template <typename T>
class Option {
 public:
  // `absent` is the number of all sentences where models lack the input.
  explicit Option(T absent) : absent_(absent) {}

  void read(const Context& context, size_t index, const Sentences& sentences) {
    const Value& value = context.input(index);
    if (!value) return;
    rows_ = value.count();
    sentences.check(rows_);
    data_ = value.as<T>();
  }

  T of(const Sentences& sentences, int64_t sentence) const {
    return data_ == nullptr ? absent_ : data_[sentences.row(sentence, rows_)];
  }

  // Whether any row differs from a number.
  bool differs(T from) const {
    if (data_ == nullptr) return absent_ != from;
    return std::any_of(data_, data_ + rows_, [&](T one) { return one != from; });
  }

 private:
  T absent_;
  const T* data_ = nullptr;
  int64_t rows_ = 1;
};

// Memory that grows as needed and begins at a cache line.
class Buffer {
 public:
  template <typename T>
  T* at_least(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    if (bytes > size_) {
      keep(0);
      memory_.reset(static_cast<char*>(::operator new(bytes, std::align_val_t(64))));
      size_ = bytes;
    }
    return reinterpret_cast<T*>(memory_.get());
  }

  // Frees it unless it is at most so large.
  void keep(int64_t bytes) {
    if (size_ <= static_cast<size_t>(bytes)) return;
    memory_.reset();
    size_ = 0;
  }

 private:
  struct Delete {
    void operator()(char* memory) const { ::operator delete(memory, std::align_val_t(64)); }
  };
  std::unique_ptr<char, Delete> memory_;
  size_t size_ = 0;
};

// An operator as ONNX Runtime takes it. A node's kernel is made by `make`. `inputs` and `outputs` list the element types; the
// inputs from `optional` on may be left out; with `variadic` the last input (and the last output) may come any number of times.
class Operator : public OrtCustomOp {
 public:
  using Make = std::unique_ptr<Kernel> (*)(const Attributes& attributes);

  Operator(const char* name, Make make, std::vector<Element> inputs, std::vector<Element> outputs,
           size_t optional = SIZE_MAX, bool variadic_inputs = false, bool variadic_outputs = false);

  const char* name() const { return name_; }
  std::unique_ptr<Kernel> make(const Attributes& attributes) const { return make_(attributes); }

  // Throws unless a node may have these inputs.
  void check_inputs(const Context& context) const;
  // The element type of an output of a node that has so many. Throws if none may have.
  Element output_type(size_t index, size_t count) const;

 private:
  const char* name_;
  Make make_;
  std::vector<Element> inputs_, outputs_;
  size_t optional_;
  bool variadic_inputs_, variadic_outputs_;
};

template <typename K>
std::unique_ptr<Kernel> make_kernel(const Attributes& attributes) {
  return std::make_unique<K>(attributes);
}

using Operators = std::vector<const Operator*>;

const Operators& operators();           // all of them
const Operators& standard_operators();  // ONNX's own, which only nodes of a Sequence or a While have

void add_project(Operators& all);
void add_embed(Operators& all);
void add_attention(Operators& all);
void add_cached_attention(Operators& all);
void add_cache(Operators& all);
void add_candidates(Operators& all);
void add_project_candidates(Operators& all);
void add_screen_candidates(Operators& all);
void add_shortlist(Operators& all);
void add_draw_token(Operators& all);
void add_advance(Operators& all);
void add_normalize(Operators& all);
void add_rotate(Operators& all);
void add_elementwise(Operators& all);
void add_parts(Operators& all);
void add_sequence(Operators& all);

}  // namespace xformc
