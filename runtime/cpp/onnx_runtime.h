// ONNX Runtime as a library that is found and opened while the program runs: any version from 1.24 on.
#pragma once

#include <memory>
#include <string>

#include "../kernels/ort_abi.h"

namespace xformc {

// One opened library with its environment. It is never unloaded: its threads may outlive every session.
class OnnxRuntime {
 public:
  // Opens `path`, or for "" the first that is found (docs/cpp.md). Throws Failure that says where it looked.
  explicit OnnxRuntime(const std::string& path);
  ~OnnxRuntime();

  const OrtApi& api() const { return *api_; }
  const OrtApiBase& base() const { return *base_; }
  const OrtEnv* environment() const { return environment_; }
  const char* version() const { return base_->GetVersionString(); }

 private:
  const OrtApiBase* base_;
  const OrtApi* api_;
  OrtEnv* environment_ = nullptr;
};

}  // namespace xformc
