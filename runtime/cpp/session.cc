#include "session.h"

#include <algorithm>

#include "../kernels/library.h"
#include "numbers.h"

namespace xformc {
namespace {

constexpr const char* RUNNING = "failed on this input";
constexpr size_t SHOWN = 300;  // characters of a message of ONNX Runtime's
constexpr const char* NO_MEMORY[] = {"Failed to allocate memory", "bad_alloc", "bad allocation"};

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

size_t element_size(ONNXTensorElementDataType element) {
  switch (element) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: return 4;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64: return 8;
    default: return 1;  // bool
  }
}

}  // namespace

Stopper::Stopper(const OrtApi& api) : api_(api), options_(nullptr, api.ReleaseRunOptions) {
  OrtRunOptions* created = nullptr;
  if (OrtStatus* status = api_.CreateRunOptions(&created)) {
    api_.ReleaseStatus(status);
    throw std::bad_alloc();
  }
  options_.reset(created);
}

void Stopper::stop() {
  stopped_ = true;
  if (OrtStatus* status = api_.RunOptionsSetTerminate(options_.get())) api_.ReleaseStatus(status);
}

Model::Model(const OnnxRuntime& runtime, const std::filesystem::path& path, const Interface& interface, int64_t threads,
             bool kernels)
    : runtime_(runtime), api_(runtime.api()), place_(path.string()), interface_(interface),
      memory_(nullptr, api_.ReleaseMemoryInfo), domain_(nullptr, api_.ReleaseCustomOpDomain),
      session_(nullptr, api_.ReleaseSession) {
  open(kernels, threads);
  check_interface();
}

void Model::open(bool kernels, int64_t threads) {
  const DefaultFloats floats;
  const auto loading = [&](OrtStatus* status) { check(status, XFORMC_INVALID_ENGINE, "cannot be loaded"); };
  OrtMemoryInfo* memory = nullptr;
  loading(api_.CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &memory));
  memory_.reset(memory);
  OrtSessionOptions* created = nullptr;
  loading(api_.CreateSessionOptions(&created));
  const Handle<OrtSessionOptions> options(created, api_.ReleaseSessionOptions);
  loading(api_.SetIntraOpNumThreads(created, static_cast<int>(threads)));
  loading(api_.SetInterOpNumThreads(created, 1));
  loading(api_.SetSessionLogSeverityLevel(created, ORT_LOGGING_LEVEL_FATAL));
  loading(api_.DisableMemPattern(created));  // the shapes of a step occur once: planning costs more than it saves
  loading(api_.AddSessionConfigEntry(created, "session.disable_quant_qdq", "1"));  // as certified: dequantized values
  if (kernels) {
    domain_.reset(make_domain(api_));
    loading(api_.AddCustomOpDomain(created, domain_.get()));
  }
  OrtSession* session = nullptr;
  loading(api_.CreateSession(runtime_.environment(), place_.c_str(), created, &session));
  session_.reset(session);
}

void Model::check_interface() {
  needed_ = names(api_.SessionGetInputCount, api_.SessionGetInputName);
  optional_ = names(api_.SessionGetOverridableInitializerCount, api_.SessionGetOverridableInitializerName);
  outputs_ = names(api_.SessionGetOutputCount, api_.SessionGetOutputName);
  find_rows();
  std::vector<std::string> missing, strange;
  for (const std::string& name : interface_.inputs) {
    if (!has(needed_, name) && !has(optional_, name)) missing.push_back(name);
  }
  for (const std::string& name : interface_.outputs) {
    if (!has(outputs_, name)) missing.push_back(name);
  }
  for (const std::string& name : needed_) {
    if (!interface_.has_states && !has(interface_.inputs, name)) strange.push_back(name);
  }
  if (missing.empty() && strange.empty()) return;
  std::sort(strange.begin(), strange.end());
  std::string problem = missing.empty() ? "" : "it lacks " + joined(missing);
  if (!strange.empty()) problem += (problem.empty() ? "it needs " : " and it needs ") + joined(strange);
  throw invalid_engine("not an xformc model: " + problem, place_, REBUILD);
}

void Model::find_rows() {
  using TypeOf = OrtStatus* (*)(const OrtSession*, size_t, OrtTypeInfo**);
  const auto loading = [&](OrtStatus* status) { check(status, XFORMC_INVALID_ENGINE, "cannot be loaded"); };
  const auto find = [&](const std::vector<std::string>& inputs, TypeOf type_of) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      OrtTypeInfo* made = nullptr;
      const OrtTensorTypeAndShapeInfo* shape = nullptr;
      loading(type_of(session_.get(), i, &made));
      const Handle<OrtTypeInfo> type(made, api_.ReleaseTypeInfo);
      loading(api_.CastTypeInfoToTensorInfo(made, &shape));
      size_t rank = 0;
      if (shape != nullptr) loading(api_.GetDimensionsCount(shape, &rank));
      ranks_[inputs[i]] = rank;
    }
  };
  find(optional_, api_.SessionGetOverridableInitializerTypeInfo);
  if (interface_.has_states) find(needed_, api_.SessionGetInputTypeInfo);  // whose options have no defaults
}

std::vector<Output> Model::run(const std::vector<Feed>& feeds, const Stopper& stopper) const {
  std::vector<Handle<OrtValue>> owned;
  owned.reserve(feeds.size());
  std::vector<const char*> inputs;
  std::vector<const OrtValue*> values;
  for (const Feed& feed : feeds) {
    owned.push_back(value_of(feed));
    inputs.push_back(feed.name.c_str());
    values.push_back(owned.back().get());
  }
  return call(inputs, values, interface_.outputs, stopper);
}

Values Model::run(const std::vector<Feed>& feeds, const Values& values, const Stopper& stopper) const {
  std::vector<Handle<OrtValue>> owned;
  owned.reserve(feeds.size());
  std::vector<const char*> inputs;
  std::vector<const OrtValue*> given;
  std::vector<std::string> missing;
  for (const auto* names : {&needed_, &optional_}) {
    for (const std::string& name : *names) {
      const auto value = values.find(name);
      const auto feed = std::find_if(feeds.begin(), feeds.end(), [&](const Feed& one) { return one.name == name; });
      if (feed != feeds.end()) owned.push_back(value_of(*feed));
      if (feed != feeds.end() || value != values.end()) {
        inputs.push_back(name.c_str());
        given.push_back(feed != feeds.end() ? owned.back().get() : value->second.value());
      } else if (names == &needed_) {
        missing.push_back(name);
      }
    }
  }
  if (!missing.empty()) {
    throw invalid_engine("not an xformc model: it needs " + joined(missing), place_, REBUILD);
  }
  std::vector<Output> outputs = call(inputs, given, outputs_, stopper);
  Values found;
  for (size_t i = 0; i < outputs.size(); ++i) found.emplace(outputs_[i], std::move(outputs[i]));
  return found;
}

Handle<OrtValue> Model::value_of(const Feed& feed) const {
  size_t bytes = element_size(feed.element);
  for (const int64_t size : feed.shape) bytes *= static_cast<size_t>(size);
  const auto rank = ranks_.find(feed.name);
  std::vector<int64_t> shape = feed.shape;  // one value of an option is a row for all texts
  if (rank != ranks_.end() && shape.size() < rank->second) shape.insert(shape.begin(), 1);
  OrtValue* value = nullptr;
  check(api_.CreateTensorWithDataAsOrtValue(memory_.get(), const_cast<void*>(feed.data), bytes, shape.data(),
                                            shape.size(), feed.element, &value),
        XFORMC_RUN_FAILED, RUNNING);
  return {value, api_.ReleaseValue};
}

std::vector<Output> Model::call(const std::vector<const char*>& inputs, const std::vector<const OrtValue*>& values,
                                const std::vector<std::string>& outputs, const Stopper& stopper) const {
  std::vector<const char*> names;
  for (const std::string& name : outputs) names.push_back(name.c_str());
  std::vector<OrtValue*> written(names.size(), nullptr);
  std::vector<Output> found;  // made before the run, so that no value is lost if memory is short
  for (const std::string& name : outputs) found.emplace_back(api_, name, place_);
  OrtStatus* status = api_.Run(session_.get(), stopper.options(), inputs.data(), values.data(), values.size(),
                               names.data(), names.size(), written.data());
  for (size_t i = 0; i < written.size(); ++i) found[i].take(written[i]);
  if (status != nullptr && stopper.stopped()) {
    api_.ReleaseStatus(status);
    throw cancelled();
  }
  check(status, XFORMC_RUN_FAILED, RUNNING);
  return found;
}

void Model::check(OrtStatus* status, xformc_status kind, const char* what) const {
  if (status == nullptr) return;
  const Handle<OrtStatus> owned(status, api_.ReleaseStatus);
  const std::string message = api_.GetErrorMessage(status);
  for (const char* part : NO_MEMORY) {
    if (message.find(part) == std::string::npos) continue;
    throw Failure(XFORMC_OUT_OF_MEMORY, std::string("the model ") + what + ": out of memory", place_,
                  "lower max_batch_tokens, or use a narrower beam");
  }
  const std::string line = message.substr(0, std::min(message.find('\n'), SHOWN));
  throw Failure(kind, std::string("the model ") + what + ": " + line, place_, REBUILD);
}

std::vector<std::string> Model::names(OrtStatus* (*count)(const OrtSession*, size_t*),
                                      OrtStatus* (*name)(const OrtSession*, size_t, OrtAllocator*, char**)) const {
  const auto loading = [&](OrtStatus* status) { check(status, XFORMC_INVALID_ENGINE, "cannot be loaded"); };
  OrtAllocator* allocator = nullptr;
  loading(api_.GetAllocatorWithDefaultOptions(&allocator));
  size_t total = 0;
  loading(count(session_.get(), &total));
  std::vector<std::string> found;
  for (size_t i = 0; i < total; ++i) {
    char* text = nullptr;
    loading(name(session_.get(), i, allocator, &text));
    const auto release = [&](char* given) { api_.ReleaseStatus(api_.AllocatorFree(allocator, given)); };
    const std::unique_ptr<char, decltype(release)> owned(text, release);
    found.emplace_back(text);
  }
  return found;
}

Session::Session(const std::string& onnxruntime, ModelFiles files, int64_t threads, int64_t workers, bool kernels,
                 std::function<void()> require_unchanged)
    : runtime_(onnxruntime), files_(std::move(files)), threads_(threads), workers_(workers), kernels_(kernels),
      require_unchanged_(std::move(require_unchanged)) {
  shared_by(workers_);
}

const Model& Session::shared_by(int64_t workers, const Needed& needed) const {
  const std::lock_guard<std::mutex> lock(opening_);
  std::unique_ptr<Model>& model = models_[workers];
  const int64_t threads = std::max<int64_t>(1, threads_ - workers + 1);
  const auto opened = [&](const ModelFile& file) {
    require_unchanged_();
    return std::make_unique<Model>(runtime_, file.path, file.interface, threads, kernels_);
  };
  if (!model) {
    std::unique_ptr<Model> made = opened(files_.model);
    if (files_.of_text) made->of_text = opened(*files_.of_text);
    model = std::move(made);
  }
  const auto add = [&](bool wanted, std::unique_ptr<const Model>& one, const std::optional<ModelFile>& file) {
    if (wanted && !one) one = opened(*file);
  };
  add(needed.scores, model->scores, files_.scores);
  add(needed.alignments, model->alignments, files_.alignments);
  add(needed.streams, model->prompt, files_.prompt);
  add(needed.streams, model->following, files_.following);
  return *model;
}

}  // namespace xformc
