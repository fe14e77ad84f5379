// A library in the place of ONNX Runtime, for tests of what surrounds a model. It runs at once, can be instrumented by
// sanitizers, counts what was not released, and returns wrong outputs when told to (fake_onnxruntime.h).
// The file of its model is text: "inputs NAME...", "outputs NAME...", and for predictions "labels COUNT INPUT", where
// INPUT is the one whose positions are labelled, or "-".
#include "fake_onnxruntime.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "../../runtime/kernels/ort_abi.h"

namespace {

std::atomic<int> mode{FAKE_HONEST};
std::atomic<long> live{0};

// Counts the objects that the caller has to release.
struct Counted {
  Counted() { ++live; }
  ~Counted() { --live; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
};

}  // namespace

struct OrtStatus : Counted {
  std::string message;
};
struct OrtEnv : Counted {};
struct OrtMemoryInfo : Counted {};
struct OrtSessionOptions : Counted {};
struct OrtAllocator {};
struct OrtCustomOpDomain : Counted {};
struct OrtRunOptions : Counted {
  std::atomic<bool> stopped{false};
};
struct OrtSession : Counted {
  std::vector<std::string> inputs, outputs;
  int64_t labels = 0;
  std::string positions;
};
struct OrtTensorTypeAndShapeInfo : Counted {
  ONNXTensorElementDataType type;
  std::vector<int64_t> shape;
};
struct OrtValue : Counted {
  ONNXTensorElementDataType type;
  std::vector<int64_t> shape;
  void* data;
  std::vector<char> own;
};

namespace {

OrtAllocator allocator;

OrtStatus* failure(const std::string& message) {
  auto* status = new OrtStatus;
  status->message = message;
  return status;
}

template <typename T>
OrtValue* make_value(ONNXTensorElementDataType type, std::vector<int64_t> shape, const std::vector<T>& numbers) {
  auto* value = new OrtValue;
  value->type = type;
  value->shape = std::move(shape);
  value->own.resize(numbers.size() * sizeof(T));
  if (!numbers.empty()) std::memcpy(value->own.data(), numbers.data(), value->own.size());
  value->data = value->own.data();
  return value;
}

OrtValue* make_integers(std::vector<int64_t> shape, const std::vector<int64_t>& numbers) {
  if (mode == FAKE_OTHER_TYPE) return make_value(ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, std::move(shape), numbers);
  return make_value(ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, std::move(shape), numbers);
}

OrtValue* make_floats(std::vector<int64_t> shape, std::vector<float> numbers) {
  if (mode == FAKE_NAN && !numbers.empty()) numbers.back() = NAN;
  if (mode == FAKE_OTHER_TYPE) return make_value(ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, std::move(shape), numbers);
  return make_value(ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, std::move(shape), numbers);
}

int64_t product(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

const OrtValue* find(const char* const* names, const OrtValue* const* values, size_t count, const char* name) {
  for (size_t i = 0; i < count; ++i) {
    if (std::strcmp(names[i], name) == 0) return values[i];
  }
  return nullptr;
}

// tokens, lengths and scores of `ranks` texts of each row (0: an output without that axis), all with these tokens.
void write(int64_t rows, int64_t ranks, const std::vector<int64_t>& each, OrtValue** outputs) {
  const auto length = static_cast<int64_t>(each.size());
  std::vector<int64_t> texts = {rows};
  if (ranks > 0) texts.push_back(ranks);
  if (mode == FAKE_MORE_ROWS) ++texts[0];
  if (mode == FAKE_FEWER_ROWS) --texts[0];
  if (mode == FAKE_OTHER_RANK) texts.push_back(1);
  std::vector<int64_t> tokens, per_token = texts;
  per_token.push_back(length);
  for (int64_t i = 0; i < product(texts); ++i) tokens.insert(tokens.end(), each.begin(), each.end());
  if (mode == FAKE_STRANGE_TOKENS) {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = i % 2 == 0 ? INT64_MIN + 1 : INT64_MAX - 1;
  }
  std::vector<int64_t> lengths(product(texts), length);
  if (mode == FAKE_LONG_LENGTHS) lengths.assign(lengths.size(), INT64_MAX);
  if (mode == FAKE_NEGATIVE_LENGTHS) lengths.assign(lengths.size(), -1);
  outputs[0] = make_integers(per_token, tokens);
  outputs[1] = make_integers(texts, lengths);
  outputs[2] = make_floats(texts, std::vector<float>(product(texts), -1));
}

void label(const OrtSession& session, const char* const* names, const OrtValue* const* inputs, size_t count,
           OrtValue** outputs) {
  std::vector<int64_t> shape = {inputs[0]->shape.at(0)};
  if (session.positions != "-") shape.push_back(find(names, inputs, count, session.positions.c_str())->shape.at(1));
  shape.push_back(session.labels);
  if (mode == FAKE_MORE_ROWS) ++shape[0];
  if (mode == FAKE_FEWER_ROWS) --shape[0];
  if (mode == FAKE_OTHER_RANK) shape.push_back(1);
  outputs[0] = make_floats(shape, std::vector<float>(product(shape), 1.0F / static_cast<float>(session.labels)));
}

OrtStatus* run(OrtSession* session, const OrtRunOptions* options, const char* const* names,
               const OrtValue* const* inputs, size_t count, const char* const*, size_t, OrtValue** outputs) noexcept {
  for (size_t i = 0; i < count; ++i) {  // every byte is read, so that sanitizers see one that is not there
    const auto* bytes = static_cast<const unsigned char*>(inputs[i]->data);
    const size_t size = inputs[i]->type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64   ? 8
                        : inputs[i]->type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT ? 4
                                                                                 : 1;
    unsigned sum = 0;
    for (size_t j = 0; j < product(inputs[i]->shape) * size; ++j) sum += bytes[j];
    if (sum == 0xffffffff) return failure("never");
  }
  while (mode == FAKE_ENDLESS && !options->stopped) std::this_thread::sleep_for(std::chrono::microseconds(100));
  if (options->stopped) return failure("terminated");
  if (mode == FAKE_FAILS) return failure("the fake fails\non two lines");
  if (mode == FAKE_FAILS_LONG) return failure(std::string(100'000, 'x'));
  const OrtValue* n_best = find(names, inputs, count, "n_best");
  const int64_t rows = inputs[0]->shape.at(0);
  if (session->labels > 0) {
    label(*session, names, inputs, count, outputs);
  } else if (n_best != nullptr) {
    write(rows, *static_cast<const int64_t*>(n_best->data), {5, 6, 7, 3}, outputs);
  } else {
    write(rows, 0, {5, 6, 3}, outputs);
  }
  return nullptr;
}

OrtStatus* open(const OrtEnv*, const char* path, const OrtSessionOptions*, OrtSession** out) noexcept {
  std::ifstream file(path);
  auto* session = new OrtSession;
  for (std::string line, kind, word; std::getline(file, line);) {
    std::istringstream words(line);
    words >> kind;
    if (kind == "labels") words >> session->labels >> session->positions;
    while (words >> word) (kind == "inputs" ? session->inputs : session->outputs).push_back(word);
  }
  if (!session->outputs.empty()) return *out = session, nullptr;
  delete session;
  return failure("not a model");
}

template <typename T>
OrtStatus* make(T** out) {
  *out = new T;
  return nullptr;
}

template <typename T>
void release(T* object) noexcept {
  delete object;
}

OrtStatus* name_of(const std::vector<std::string>& names, size_t index, char** out) {
  ++live;
  *out = strdup(names.at(index).c_str());
  return nullptr;
}

OrtApi make_api() {
  OrtApi api{};
  api.CreateStatus = [](OrtErrorCode, const char* message) noexcept { return failure(message); };
  api.GetErrorCode = [](const OrtStatus*) noexcept { return ORT_FAIL; };
  api.GetErrorMessage = [](const OrtStatus* status) noexcept { return status->message.c_str(); };
  api.CreateEnv = [](OrtLoggingLevel, const char*, OrtEnv** out) noexcept { return make(out); };
  api.CreateSession = open;
  api.Run = run;
  api.CreateSessionOptions = [](OrtSessionOptions** out) noexcept { return make(out); };
  api.DisableMemPattern = [](OrtSessionOptions*) noexcept -> OrtStatus* { return nullptr; };
  api.SetSessionLogSeverityLevel = [](OrtSessionOptions*, int) noexcept -> OrtStatus* { return nullptr; };
  api.SetIntraOpNumThreads = [](OrtSessionOptions*, int) noexcept -> OrtStatus* { return nullptr; };
  api.SetInterOpNumThreads = [](OrtSessionOptions*, int) noexcept -> OrtStatus* { return nullptr; };
  api.AddSessionConfigEntry = [](OrtSessionOptions*, const char*, const char*) noexcept -> OrtStatus* {
    return nullptr;
  };
  api.CreateCustomOpDomain = [](const char*, OrtCustomOpDomain** out) noexcept { return make(out); };
  api.CustomOpDomain_Add = [](OrtCustomOpDomain*, const OrtCustomOp*) noexcept -> OrtStatus* { return nullptr; };
  api.AddCustomOpDomain = [](OrtSessionOptions*, OrtCustomOpDomain*) noexcept -> OrtStatus* { return nullptr; };
  api.SessionGetInputCount = [](const OrtSession* session, size_t* out) noexcept -> OrtStatus* {
    return *out = session->inputs.size(), nullptr;
  };
  api.SessionGetOutputCount = [](const OrtSession* session, size_t* out) noexcept -> OrtStatus* {
    return *out = session->outputs.size(), nullptr;
  };
  api.SessionGetOverridableInitializerCount = [](const OrtSession*, size_t* out) noexcept -> OrtStatus* {
    return *out = 0, nullptr;
  };
  api.SessionGetInputName = [](const OrtSession* session, size_t index, OrtAllocator*, char** out) noexcept {
    return name_of(session->inputs, index, out);
  };
  api.SessionGetOutputName = [](const OrtSession* session, size_t index, OrtAllocator*, char** out) noexcept {
    return name_of(session->outputs, index, out);
  };
  api.CreateRunOptions = [](OrtRunOptions** out) noexcept { return make(out); };
  api.RunOptionsSetTerminate = [](OrtRunOptions* options) noexcept -> OrtStatus* {
    return options->stopped = true, nullptr;
  };
  api.CreateTensorWithDataAsOrtValue = [](const OrtMemoryInfo*, void* data, size_t, const int64_t* shape, size_t rank,
                                          ONNXTensorElementDataType type, OrtValue** out) noexcept -> OrtStatus* {
    *out = new OrtValue;
    (*out)->type = type;
    (*out)->shape.assign(shape, shape + rank);
    (*out)->data = data;
    return nullptr;
  };
  api.IsTensor = [](const OrtValue*, int* out) noexcept -> OrtStatus* {
    return *out = mode == FAKE_NO_TENSORS ? 0 : 1, nullptr;
  };
  api.GetTensorMutableData = [](OrtValue* value, void** out) noexcept -> OrtStatus* {
    return *out = value->data, nullptr;
  };
  api.GetTensorElementType = [](const OrtTensorTypeAndShapeInfo* info,
                                ONNXTensorElementDataType* out) noexcept -> OrtStatus* {
    return *out = info->type, nullptr;
  };
  api.GetDimensionsCount = [](const OrtTensorTypeAndShapeInfo* info, size_t* out) noexcept -> OrtStatus* {
    return *out = info->shape.size(), nullptr;
  };
  api.GetDimensions = [](const OrtTensorTypeAndShapeInfo* info, int64_t* out, size_t count) noexcept -> OrtStatus* {
    std::copy_n(info->shape.begin(), count, out);
    return nullptr;
  };
  api.GetTensorTypeAndShape = [](const OrtValue* value, OrtTensorTypeAndShapeInfo** out) noexcept -> OrtStatus* {
    if (mode == FAKE_NO_TENSORS) return failure("not a tensor");
    *out = new OrtTensorTypeAndShapeInfo;
    (*out)->type = value->type;
    (*out)->shape = value->shape;
    return nullptr;
  };
  api.CreateCpuMemoryInfo = [](OrtAllocatorType, OrtMemType, OrtMemoryInfo** out) noexcept { return make(out); };
  api.AllocatorFree = [](OrtAllocator*, void* memory) noexcept -> OrtStatus* {
    --live;
    return std::free(memory), nullptr;
  };
  api.GetAllocatorWithDefaultOptions = [](OrtAllocator** out) noexcept -> OrtStatus* {
    return *out = &allocator, nullptr;
  };
  api.ReleaseEnv = release;
  api.ReleaseStatus = release;
  api.ReleaseMemoryInfo = release;
  api.ReleaseSession = release;
  api.ReleaseValue = release;
  api.ReleaseRunOptions = release;
  api.ReleaseTensorTypeAndShapeInfo = release;
  api.ReleaseSessionOptions = release;
  api.ReleaseCustomOpDomain = release;
  return api;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const OrtApiBase* OrtGetApiBase() {
  static const OrtApi api = make_api();
  static const OrtApiBase base = {[](uint32_t) noexcept -> const OrtApi* { return &api; },
                                  []() noexcept -> const char* { return "fake"; }};
  return &base;
}

void fake_set(fake_mode chosen) { mode = chosen; }

long fake_live() { return live; }
