// A thin C++ face on ort_abi.h: what fails throws Ort::Exception, and inside an operator that becomes an OrtStatus.
#pragma once

#include <climits>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "ort_abi.h"

namespace Ort {

// The functions of the ONNX Runtime that called this thread's operator: nothing is linked to one, and a process may have
// several, whose objects mean nothing to each other.
inline thread_local const OrtApi* table = nullptr;

inline const OrtApi& GetApi() { return *table; }

class Exception : public std::exception {
 public:
  Exception(std::string message, OrtErrorCode code) : message_(std::move(message)), code_(code) {}

  OrtErrorCode GetOrtErrorCode() const { return code_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
  OrtErrorCode code_;
};

[[noreturn]] inline void Throw(OrtStatus* status) {
  Exception error(GetApi().GetErrorMessage(status), GetApi().GetErrorCode(status));
  GetApi().ReleaseStatus(status);
  throw error;
}

inline void ThrowOnError(OrtStatus* status) {
  if (status != nullptr) Throw(status);
}

// Runs body() with the functions of `api`, and returns its status: null, or the exception that it threw.
template <typename Body>
OrtStatus* StatusOf(const OrtApi& api, const Body& body) noexcept {
  try {
    table = &api;
    body();
    return nullptr;
  } catch (const Exception& error) {
    return api.CreateStatus(error.GetOrtErrorCode(), error.what());
  } catch (const std::exception& error) {
    return api.CreateStatus(ORT_RUNTIME_EXCEPTION, error.what());
  } catch (...) {
    return api.CreateStatus(ORT_RUNTIME_EXCEPTION, "an unknown exception");
  }
}

// The element type and the shape of a tensor.
class TensorTypeAndShapeInfo {
 public:
  explicit TensorTypeAndShapeInfo(const OrtValue* value) {
    ThrowOnError(GetApi().GetTensorTypeAndShape(value, &info_));
  }
  TensorTypeAndShapeInfo(const TensorTypeAndShapeInfo&) = delete;
  TensorTypeAndShapeInfo& operator=(const TensorTypeAndShapeInfo&) = delete;
  ~TensorTypeAndShapeInfo() { GetApi().ReleaseTensorTypeAndShapeInfo(info_); }

  ONNXTensorElementDataType GetElementType() const {
    ONNXTensorElementDataType type;
    ThrowOnError(GetApi().GetTensorElementType(info_, &type));
    return type;
  }
  size_t GetDimensionsCount() const {
    size_t rank = 0;
    ThrowOnError(GetApi().GetDimensionsCount(info_, &rank));
    return rank;
  }
  void GetDimensions(int64_t* sizes, size_t rank) const { ThrowOnError(GetApi().GetDimensions(info_, sizes, rank)); }

 private:
  OrtTensorTypeAndShapeInfo* info_ = nullptr;
};

// The memory of a tensor.
inline void* data_of(OrtValue* value) {
  void* data = nullptr;
  ThrowOnError(GetApi().GetTensorMutableData(value, &data));
  return data;
}

// The inputs, the outputs and the threads of one call of an operator.
class KernelContext {
 public:
  explicit KernelContext(OrtKernelContext* context) : context_(context) {}

  size_t GetInputCount() const {
    size_t count = 0;
    ThrowOnError(GetApi().KernelContext_GetInputCount(context_, &count));
    return count;
  }
  size_t GetOutputCount() const {
    size_t count = 0;
    ThrowOnError(GetApi().KernelContext_GetOutputCount(context_, &count));
    return count;
  }
  // Null for an input that is left out.
  const OrtValue* GetInput(size_t index) const {
    const OrtValue* value = nullptr;
    ThrowOnError(GetApi().KernelContext_GetInput(context_, index, &value));
    return value;
  }
  // Null for an output that is left out.
  OrtValue* GetOutput(size_t index, const int64_t* sizes, size_t rank) const {
    OrtValue* value = nullptr;
    ThrowOnError(GetApi().KernelContext_GetOutput(context_, index, sizes, rank, &value));
    return value;
  }
  // Calls work(data, i) for i in 0..count-1, in `batches` parts of them, and returns when all are done.
  void ParallelFor(void (*work)(void* data, size_t i), size_t count, size_t batches, void* data) const {
    ThrowOnError(GetApi().KernelContext_ParallelFor(context_, work, count, batches, data));
  }

 private:
  OrtKernelContext* context_;
};

// The attributes of a node.
class ConstKernelInfo {
 public:
  explicit ConstKernelInfo(const OrtKernelInfo* info) : info_(info) {}

  // T is float, int64_t or std::string.
  template <typename T>
  T GetAttribute(const char* name) const;

  // T is int64_t.
  template <typename T>
  std::vector<T> GetAttributes(const char* name) const;

  // The attribute, or `otherwise` for a node without it.
  int64_t GetAttributeOr(const char* name, int64_t otherwise) const {
    return ValueOr(GetApi().KernelInfoGetAttribute_int64, name, otherwise);
  }
  float GetAttributeOr(const char* name, float otherwise) const {
    return ValueOr(GetApi().KernelInfoGetAttribute_float, name, otherwise);
  }

  size_t GetInputCount() const {
    size_t count = 0;
    ThrowOnError(GetApi().KernelInfo_GetInputCount(info_, &count));
    return count;
  }

  // An input that is a constant of the model, else null.
  const OrtValue* GetConstantInput(size_t index) const {
    int constant = 0;
    const OrtValue* value = nullptr;
    ThrowOnError(GetApi().KernelInfoGetConstantInput_tensor(info_, index, &constant, &value));
    return constant != 0 ? value : nullptr;
  }

 private:
  template <typename T>
  T ValueOr(OrtStatus* (*get)(const OrtKernelInfo*, const char*, T*) noexcept, const char* name, T otherwise) const {
    T value = otherwise;
    if (OrtStatus* status = get(info_, name, &value)) {
      GetApi().ReleaseStatus(status);
      return otherwise;
    }
    return value;
  }

  const OrtKernelInfo* info_;
};

template <>
inline float ConstKernelInfo::GetAttribute<float>(const char* name) const {
  float value = 0;
  ThrowOnError(GetApi().KernelInfoGetAttribute_float(info_, name, &value));
  return value;
}

template <>
inline int64_t ConstKernelInfo::GetAttribute<int64_t>(const char* name) const {
  int64_t value = 0;
  ThrowOnError(GetApi().KernelInfoGetAttribute_int64(info_, name, &value));
  return value;
}

template <>
inline std::string ConstKernelInfo::GetAttribute<std::string>(const char* name) const {
  size_t size = 0;
  ThrowOnError(GetApi().KernelInfoGetAttribute_string(info_, name, nullptr, &size));
  std::string value(size, '\0');
  ThrowOnError(GetApi().KernelInfoGetAttribute_string(info_, name, value.data(), &size));
  value.resize(size - 1);  // without the final null
  return value;
}

template <>
inline std::vector<int64_t> ConstKernelInfo::GetAttributes<int64_t>(const char* name) const {
  size_t size = 0;
  ThrowOnError(GetApi().KernelInfoGetAttributeArray_int64(info_, name, nullptr, &size));
  std::vector<int64_t> values(size);
  ThrowOnError(GetApi().KernelInfoGetAttributeArray_int64(info_, name, values.data(), &size));
  return values;
}

// Operators under one name. Sessions use them as long as they live; nobody frees the domain for them.
class CustomOpDomain {
 public:
  explicit CustomOpDomain(const char* name) { ThrowOnError(GetApi().CreateCustomOpDomain(name, &domain_)); }

  void Add(const OrtCustomOp* op) { ThrowOnError(GetApi().CustomOpDomain_Add(domain_, op)); }
  OrtCustomOpDomain* Get() const { return domain_; }

 private:
  OrtCustomOpDomain* domain_ = nullptr;
};

}  // namespace Ort
