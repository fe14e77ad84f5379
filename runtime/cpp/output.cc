#include "output.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "failure.h"

namespace xformc {
namespace {

const char* name_of(ONNXTensorElementDataType element) {
  constexpr const char* NAMES[] = {"nothing", "float32", "uint8",     "int8",      "uint16",  "int16",
                                   "int32",   "int64",   "object",    "bool",      "float16", "float64",
                                   "uint32",  "uint64",  "complex64", "complex128"};
  return static_cast<size_t>(element) < std::size(NAMES) ? NAMES[element] : "another type";
}

template <typename Item, typename Text>
std::string listed(const std::vector<Item>& items, const Text& text) {
  std::string joined;
  for (const Item& item : items) joined += (joined.empty() ? "" : ", ") + text(item);
  return "[" + joined + "]";
}

std::string text_of(const Size& size) { return (size.exact ? "" : "at most ") + std::to_string(size.most); }

int64_t count_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

Size Size::up_to(int64_t most) {
  Size size(std::max<int64_t>(0, most));
  size.exact = false;
  return size;
}

const float* Output::floats(const std::vector<Size>& shape, std::vector<int64_t>& found) const {
  const auto* numbers = static_cast<const float*>(data(ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, shape, found));
  if (std::any_of(numbers, numbers + count_of(found), [](float number) { return std::isnan(number); })) {
    throw Failure(XFORMC_RUN_FAILED, "the output " + name_ + " has NaN", place_,
                  "the weights are the likely cause: check the engine with `xformc verify ENGINE`");
  }
  return numbers;
}

const int64_t* Output::integers(const std::vector<Size>& shape, std::vector<int64_t>& found, int64_t below) const {
  const auto* numbers = static_cast<const int64_t*>(data(ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, shape, found));
  const int64_t count = count_of(found);
  if (count == 0) return numbers;
  const auto [least, largest] = std::minmax_element(numbers, numbers + count);
  if (*least >= 0 && *largest < below) return numbers;
  throw Failure(XFORMC_RUN_FAILED,
                "the output " + name_ + " has " + std::to_string(*least < 0 ? *least : *largest) + ", not from 0 to " +
                    std::to_string(below - 1),
                place_, REBUILD);
}

int64_t Output::integer() const {
  std::vector<int64_t> found;
  return *static_cast<const int64_t*>(data(ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, {}, found));
}

const unsigned char* Output::truths(const std::vector<Size>& shape) const {
  std::vector<int64_t> found;
  return static_cast<const unsigned char*>(data(ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, shape, found));
}

const void* Output::data(ONNXTensorElementDataType element, const std::vector<Size>& shape,
                         std::vector<int64_t>& found) const {
  OrtTensorTypeAndShapeInfo* raw = nullptr;
  int is_tensor = 0;
  OrtStatus* failed = api_.IsTensor(value_.get(), &is_tensor);
  if (failed == nullptr && is_tensor != 0) failed = api_.GetTensorTypeAndShape(value_.get(), &raw);
  const Handle<OrtTensorTypeAndShapeInfo> info(raw, api_.ReleaseTensorTypeAndShapeInfo);
  auto type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  size_t rank = 0;
  void* numbers = nullptr;
  if (failed == nullptr && raw != nullptr) failed = api_.GetTensorElementType(raw, &type);
  if (failed == nullptr && raw != nullptr) failed = api_.GetDimensionsCount(raw, &rank);
  found.assign(failed == nullptr ? rank : 0, 0);
  if (failed == nullptr && raw != nullptr) failed = api_.GetDimensions(raw, found.data(), rank);
  if (failed == nullptr && type == element) failed = api_.GetTensorMutableData(value_.get(), &numbers);
  const bool worked = failed == nullptr;
  if (!worked) api_.ReleaseStatus(failed);
  const auto fits = [](int64_t size, const Size& wanted) {
    return wanted.exact ? size == wanted.most : size <= wanted.most;
  };
  if (worked && type == element && std::equal(found.begin(), found.end(), shape.begin(), shape.end(), fits)) {
    return numbers;
  }
  throw Failure(XFORMC_RUN_FAILED,
                "the output " + name_ + " is " + name_of(type) + " " +
                    listed(found, [](int64_t size) { return std::to_string(size); }) + "; this call needs " +
                    name_of(element) + " " + listed(shape, text_of),
                place_, REBUILD);
}

}  // namespace xformc
