// An output of a model. Others wrote the model, so nothing is indexed before it is checked.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../kernels/ort_abi.h"

namespace xformc {

template <typename T>
using Handle = std::unique_ptr<T, void (*)(T*)>;

// The size of an axis that a call needs.
struct Size {
  Size(int64_t size) : most(size), exact(true) {}  // NOLINT: a number is a size
  static Size up_to(int64_t most);

  int64_t most;
  bool exact;
};

class Output {
 public:
  Output(const OrtApi& api, std::string name, std::string place)
      : api_(api), value_(nullptr, api.ReleaseValue), name_(std::move(name)), place_(std::move(place)) {}

  // Takes over a value of ONNX Runtime's.
  void take(OrtValue* value) { value_.reset(value); }
  const OrtValue* value() const { return value_.get(); }

  // The numbers, in row-major order; `found` becomes the shape. Throws Failure for another type or shape, for NaN, and
  // for integers that are negative or not below `below`.
  const float* floats(const std::vector<Size>& shape, std::vector<int64_t>& found) const;
  const int64_t* integers(const std::vector<Size>& shape, std::vector<int64_t>& found, int64_t below) const;

  // The one number, and truths. Throw Failure for another type or shape.
  int64_t integer() const;
  const unsigned char* truths(const std::vector<Size>& shape) const;

 private:
  const void* data(ONNXTensorElementDataType element, const std::vector<Size>& shape,
                   std::vector<int64_t>& found) const;

  const OrtApi& api_;
  Handle<OrtValue> value_;
  std::string name_, place_;
};

}  // namespace xformc
