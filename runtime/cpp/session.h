// The session of an engine, arrays in and arrays out. It is thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "failure.h"
#include "onnx_runtime.h"
#include "output.h"

namespace xformc {

// An input of the model: memory of the caller's, which must live as long as the run.
struct Feed {
  std::string name;
  ONNXTensorElementDataType element;
  const void* data;
  std::vector<int64_t> shape;
};

// What ends the runs of one call early.
class Stopper {
 public:
  explicit Stopper(const OrtApi& api);
  Stopper(const Stopper&) = delete;
  Stopper& operator=(const Stopper&) = delete;

  void stop();
  bool stopped() const { return stopped_; }
  const OrtRunOptions* options() const { return options_.get(); }

 private:
  const OrtApi& api_;
  Handle<OrtRunOptions> options_;
  std::atomic<bool> stopped_ = false;
};

// The names of a model's inputs, those with defaults included, and of its outputs.
struct Interface {
  std::vector<std::string> inputs, outputs;
};

// A model in ONNX Runtime, on the CPU.
class Model {
 public:
  // Opens the model with this number of threads; with `kernels`, it may use xformc's operators. Throws Failure if
  // ONNX Runtime rejects it, or if it has another interface.
  Model(const OnnxRuntime& runtime, const std::filesystem::path& path, const Interface& interface, int64_t threads,
        bool kernels);

  // Returns the outputs of the interface, in order. Throws Failure; XFORMC_CANCELLED if the stopper ended the run.
  std::vector<Output> run(const std::vector<Feed>& feeds, const Stopper& stopper) const;

  const std::string& place() const { return place_; }

  // The model of the results that depend on the text that this one writes; null without any.
  std::unique_ptr<const Model> of_text;

  // The model of the probabilities of given texts; null until they are asked for.
  std::unique_ptr<const Model> scores;

 private:
  void open(bool kernels, int64_t threads);
  void check_interface();
  void check(OrtStatus* status, xformc_status kind, const char* what) const;
  std::vector<std::string> names(OrtStatus* (*count)(const OrtSession*, size_t*),
                                 OrtStatus* (*name)(const OrtSession*, size_t, OrtAllocator*, char**)) const;
  void find_rows(const std::vector<std::string>& optional);

  const OnnxRuntime& runtime_;
  const OrtApi& api_;
  const std::string place_;
  const Interface interface_;
  std::map<std::string, std::string> old_names_;  // of inputs of this model, by current name
  std::map<std::string, size_t> ranks_;           // of inputs with defaults: options may have a row for each text
  Handle<OrtMemoryInfo> memory_;
  Handle<OrtCustomOpDomain> domain_;  // outlives the session
  Handle<OrtSession> session_;
};

// A model's file and interface.
struct ModelFile {
  std::filesystem::path path;
  Interface interface;
};

// The model of an engine, opened once for each number of workers that calls ask for. Each worker uses one of the
// threads, and all workers share the rest, so that no core runs more than one thread.
class Session {
 public:
  // `of_text` is the model of the results that depend on the written text, and `scores` that of the probabilities of
  // given texts, if there are any.
  Session(const std::string& onnxruntime, ModelFile model, std::optional<ModelFile> of_text,
          std::optional<ModelFile> scores, int64_t threads, int64_t workers, bool kernels);

  int64_t workers() const { return workers_; }
  const OnnxRuntime& runtime() const { return runtime_; }
  const std::string place() const { return model_.path.string(); }

  // With `scores`, the model has its scores, which there must be.
  const Model& shared_by(int64_t workers, bool scores = false) const;

 private:
  OnnxRuntime runtime_;
  const ModelFile model_;
  const std::optional<ModelFile> of_text_, scores_;
  const int64_t threads_, workers_;
  const bool kernels_;
  mutable std::mutex opening_;
  mutable std::map<int64_t, std::unique_ptr<Model>> models_;
};

}  // namespace xformc
