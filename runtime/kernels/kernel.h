// The parts that all operators of docs/kernels.md share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "ort.h"

namespace xformc {

using Shape = std::vector<int64_t>;

inline Shape shape_of(const Ort::ConstValue& value) { return value.GetTensorTypeAndShapeInfo().GetShape(); }

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
void parallel(Ort::KernelContext& context, size_t count, const Work& work) {
  if (count == 1) {
    work(size_t{0});
  } else if (count > 1) {
    Caught<Work> caught{work};
    context.ParallelFor([](void* data, size_t i) { (*static_cast<Caught<Work>*>(data))(i); }, count, count, &caught);
    if (caught.failure != nullptr) std::rethrow_exception(caught.failure);
  }
}

// The threads that work may be divided among: those of the machine, since nothing says how many a session has.
inline int64_t machine_threads() {
  static const int64_t threads = std::max(1u, std::thread::hardware_concurrency());
  return threads;
}

inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }  // a >= 0, b > 0

[[noreturn]] inline void fail(const std::string& message) { throw Ort::Exception(message, ORT_INVALID_ARGUMENT); }

inline void require(bool condition, const char* message) {
  if (!condition) fail(message);
}

// a * b; throws on int64 overflow: attributes may be any number, and an empty tensor may have any axes.
inline int64_t times(int64_t a, int64_t b) {
  int64_t result = 0;
  require(!__builtin_mul_overflow(a, b, &result), "the sizes are too large");
  return result;
}

inline int64_t product(const Shape& shape, size_t first, size_t last) {
  int64_t result = 1;
  for (size_t i = first; i < last; ++i) result = times(result, shape[i]);
  return result;
}

// The value of an input with one element.
template <typename T>
T single(const Ort::KernelContext& context, size_t index) {
  const Ort::ConstValue value = context.GetInput(index);
  if (value.GetTensorTypeAndShapeInfo().GetElementCount() != 1) {
    fail("input " + std::to_string(index) + " is not one number");
  }
  return *value.GetTensorData<T>();
}

// The numbers of an input, of which there must be `count`, or null if it is left out.
template <typename T>
const T* optional_input(const Ort::KernelContext& context, size_t index, int64_t count, const char* message) {
  if (index >= context.GetInputCount()) return nullptr;
  const Ort::ConstValue value = context.GetInput(index);
  if (static_cast<const OrtValue*>(value) == nullptr) return nullptr;
  const auto info = value.GetTensorTypeAndShapeInfo();
  require(
      info.GetElementType() == Ort::TypeToTensorType<T>::type && info.GetElementCount() == static_cast<size_t>(count),
      message);
  return value.GetTensorData<T>();
}

// The rows of the options in which the sentences of a step find their own: those of an optional input [batch], which older
// models lack; then each sentence has the row of its number.
class Sentences {
 public:
  Sentences(const Ort::KernelContext& context, size_t index, int64_t batch)
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

  void read(const Ort::KernelContext& context, size_t index, const Sentences& sentences) {
    if (index >= context.GetInputCount() || !context.GetInput(index)) return;
    const Ort::ConstValue value = context.GetInput(index);
    rows_ = static_cast<int64_t>(value.GetTensorTypeAndShapeInfo().GetElementCount());
    sentences.check(rows_);
    data_ = value.GetTensorData<T>();
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
      memory_.reset(static_cast<char*>(::operator new(bytes, std::align_val_t(64))));
      size_ = bytes;
    }
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  struct Delete {
    void operator()(char* memory) const { ::operator delete(memory, std::align_val_t(64)); }
  };
  std::unique_ptr<char, Delete> memory_;
  size_t size_ = 0;
};

using Element = ONNXTensorElementDataType;
constexpr Element FLOAT = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
constexpr Element FLOAT16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
constexpr Element INT8 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
constexpr Element INT16 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16;
constexpr Element INT32 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
constexpr Element INT64 = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
constexpr Element BOOL = ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL;
constexpr Element ANY = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;

// An operator whose kernel class is Kernel: Kernel(const OrtKernelInfo*) reads the attributes, Compute(OrtKernelContext*)
// does the work. `inputs` and `outputs` list the element types; the inputs from `optional` on may be left out; with
// `variadic` the last input (and the last output) may come any number of times.
template <typename Kernel>
struct Operator : Ort::CustomOpBase<Operator<Kernel>, Kernel> {
  Operator(const char* name, std::vector<Element> inputs, std::vector<Element> outputs, size_t optional = SIZE_MAX,
           bool variadic_inputs = false, bool variadic_outputs = false)
      : name_(name), inputs_(std::move(inputs)), outputs_(std::move(outputs)), optional_(optional),
        variadic_inputs_(variadic_inputs), variadic_outputs_(variadic_outputs) {}

  const char* GetName() const { return name_; }
  size_t GetInputTypeCount() const { return inputs_.size(); }
  Element GetInputType(size_t i) const { return inputs_[i]; }
  size_t GetOutputTypeCount() const { return outputs_.size(); }
  Element GetOutputType(size_t i) const { return outputs_[i]; }
  OrtCustomOpInputOutputCharacteristic GetInputCharacteristic(size_t i) const {
    if (variadic_inputs_ && i + 1 == inputs_.size()) return INPUT_OUTPUT_VARIADIC;
    return i >= optional_ ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED;
  }
  OrtCustomOpInputOutputCharacteristic GetOutputCharacteristic(size_t i) const {
    return variadic_outputs_ && i + 1 == outputs_.size() ? INPUT_OUTPUT_VARIADIC : INPUT_OUTPUT_REQUIRED;
  }
  bool GetVariadicInputHomogeneity() const { return false; }
  bool GetVariadicOutputHomogeneity() const { return true; }

 private:
  const char* name_;
  std::vector<Element> inputs_, outputs_;
  size_t optional_;
  bool variadic_inputs_, variadic_outputs_;
};

void add_project(Ort::CustomOpDomain& domain);
void add_embed(Ort::CustomOpDomain& domain);
void add_attention(Ort::CustomOpDomain& domain);
void add_cached_attention(Ort::CustomOpDomain& domain);
void add_cache(Ort::CustomOpDomain& domain);
void add_candidates(Ort::CustomOpDomain& domain);
void add_project_candidates(Ort::CustomOpDomain& domain);
void add_screen_candidates(Ort::CustomOpDomain& domain);
void add_draw_token(Ort::CustomOpDomain& domain);
void add_advance(Ort::CustomOpDomain& domain);

}  // namespace xformc
