// The session of an engine, arrays in and arrays out. It is thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
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
  bool has_states = false;  // it may have others, whose values are passed from one run to the next
};

// Outputs of runs by name: they stay in ONNX Runtime, and may be inputs of later runs.
using Values = std::map<std::string, Output>;

// A model in ONNX Runtime, on the CPU.
class Model {
 public:
  // Opens the model with this number of threads; with `kernels`, it may use xformc's operators. Throws Failure if
  // ONNX Runtime rejects it, or if it has another interface.
  Model(const OnnxRuntime& runtime, const std::filesystem::path& path, const Interface& interface, int64_t threads,
        bool kernels);

  // Returns the outputs of the interface, in order. Throws Failure; XFORMC_CANCELLED if the stopper ended the run.
  std::vector<Output> run(const std::vector<Feed>& feeds, const Stopper& stopper) const;

  // The same for a model with states: it takes those of the feeds and the values that are inputs of it, without a copy,
  // and returns all outputs.
  Values run(const std::vector<Feed>& feeds, const Values& values, const Stopper& stopper) const;

  const std::string& place() const { return place_; }

  // The model of the results that depend on the text that this one writes; null without any.
  std::unique_ptr<const Model> of_text;

  // The models of the probabilities and of the alignments of given texts, and those of a stream of tokens: what reads a
  // prompt, and what goes on from there. Null until they are asked for.
  std::unique_ptr<const Model> scores, alignments, prompt, following;

 private:
  void open(bool kernels, int64_t threads);
  void check_interface();
  void check(OrtStatus* status, xformc_status kind, const char* what) const;
  Handle<OrtValue> value_of(const Feed& feed) const;
  std::vector<Output> call(const std::vector<const char*>& inputs, const std::vector<const OrtValue*>& values,
                           const std::vector<std::string>& outputs, const Stopper& stopper) const;
  std::vector<std::string> names(OrtStatus* (*count)(const OrtSession*, size_t*),
                                 OrtStatus* (*name)(const OrtSession*, size_t, OrtAllocator*, char**)) const;
  void find_rows();

  const OnnxRuntime& runtime_;
  const OrtApi& api_;
  const std::string place_;
  const Interface interface_;
  std::map<std::string, size_t> ranks_;                   // of inputs: options may have a row for each text
  std::vector<std::string> needed_, optional_, outputs_;  // all inputs without and with defaults, and all outputs
  Handle<OrtMemoryInfo> memory_;
  Handle<OrtCustomOpDomain> domain_;  // outlives the session
  Handle<OrtSession> session_;
};

// A model's file and interface.
struct ModelFile {
  std::filesystem::path path;
  Interface interface;
};

// The models of an engine: its own, and those that it may have beside it.
struct ModelFiles {
  ModelFile model;
  std::optional<ModelFile> of_text, scores, alignments, prompt, following;
};

// The models that a call needs beside the engine's own, which there must be.
struct Needed {
  bool scores = false, alignments = false, streams = false;
};

// The model of an engine, opened once for each number of workers that calls ask for. Each worker uses one of the
// threads, and all workers share the rest, so that no core runs more than one thread.
class Session {
 public:
  // `require_unchanged` throws Failure if the files are another engine's by now; it is called before files are opened.
  Session(const std::string& onnxruntime, ModelFiles files, int64_t threads, int64_t workers, bool kernels,
          std::function<void()> require_unchanged);

  int64_t workers() const { return workers_; }
  const OnnxRuntime& runtime() const { return runtime_; }
  const std::string place() const { return files_.model.path.string(); }

  const Model& shared_by(int64_t workers, const Needed& needed = {}) const;

 private:
  OnnxRuntime runtime_;
  const ModelFiles files_;
  const int64_t threads_, workers_;
  const bool kernels_;
  const std::function<void()> require_unchanged_;
  mutable std::mutex opening_;
  mutable std::map<int64_t, std::unique_ptr<Model>> models_;
};

}  // namespace xformc
