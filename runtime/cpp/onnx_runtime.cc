#include "onnx_runtime.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "failure.h"

namespace xformc {
namespace {

namespace fs = std::filesystem;

constexpr const char* VARIABLE = "XFORMC_ONNXRUNTIME";
constexpr const char* SONAME = "libonnxruntime.so.1";
constexpr const char* OLDEST = "1.24";
constexpr uint32_t OLDEST_API = 24;
constexpr const char* INSTALL =
    "set XFORMC_ONNXRUNTIME or the load option onnxruntime to the file libonnxruntime.so of version 1.24 or newer: "
    "it is in the Python package onnxruntime, and in https://github.com/microsoft/onnxruntime/releases";

fs::path file_of(const void* symbol) {
  Dl_info info;
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code none;
  return fs::weakly_canonical(info.dli_fname, none);
}

// Adds the files libonnxruntime.so* in a folder, the shortest name first.
void add_libraries(const fs::path& folder, std::vector<fs::path>& found) {
  std::error_code none;
  std::vector<fs::path> here;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().filename().string().rfind("libonnxruntime.so", 0) == 0) here.push_back(entry.path());
  }
  std::sort(here.begin(), here.end());
  found.insert(found.end(), here.begin(), here.end());
}

// Adds the libraries of the Python packages below a prefix, such as /usr/local or a virtual environment.
void add_packages(const fs::path& prefix, std::vector<fs::path>& found) {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(prefix / "lib", none)) {
    if (entry.path().filename().string().rfind("python3", 0) != 0) continue;
    add_libraries(entry.path() / "site-packages" / "onnxruntime" / "capi", found);
  }
}

// Where the library may be, the nearest first: beside this one, in the Python environment that this one or the program
// is a part of, and in the active environment.
std::vector<fs::path> candidates() {
  std::vector<fs::path> found;
  std::error_code none;
  const fs::path here = file_of(reinterpret_cast<const void*>(&candidates)).parent_path();
  add_libraries(here, found);
  add_libraries(here.parent_path().parent_path() / "onnxruntime" / "capi", found);  // site-packages/xformc/lib
  const fs::path program = fs::read_symlink("/proc/self/exe", none).parent_path();
  add_libraries(program, found);
  add_packages(program.parent_path(), found);
  if (const char* active = std::getenv("VIRTUAL_ENV")) add_packages(active, found);
  return found;
}

void* open_library(const std::string& given) {
  if (!given.empty()) {
    if (void* library = dlopen(given.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* reason = dlerror();
    throw invalid_engine(std::string("ONNX Runtime cannot be opened: ") + (reason == nullptr ? "" : reason), given,
                         INSTALL);
  }
  for (const fs::path& path : candidates()) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  if (void* library = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL)) return library;
  throw invalid_engine("ONNX Runtime (libonnxruntime.so) was not found", "", INSTALL);
}

const OrtApiBase* open_base(const std::string& given) {
  const char* named = std::getenv(VARIABLE);
  const std::string path = !given.empty() ? given : named == nullptr ? "" : named;
  using GetApiBase = const OrtApiBase* (*)();
  const auto get = reinterpret_cast<GetApiBase>(dlsym(open_library(path), "OrtGetApiBase"));
  if (get == nullptr) throw invalid_engine("not a library of ONNX Runtime: it has no OrtGetApiBase", path, INSTALL);
  return get();
}

}  // namespace

OnnxRuntime::OnnxRuntime(const std::string& path) : base_(open_base(path)), api_(base_->GetApi(ORT_VERSION)) {
  if (api_ == nullptr || base_->GetApi(OLDEST_API) == nullptr) {
    throw invalid_engine(std::string("ONNX Runtime ") + version() + " is too old; xformc needs " + OLDEST, path,
                         INSTALL);
  }
  OrtStatus* status = api_->CreateEnv(ORT_LOGGING_LEVEL_FATAL, "xformc", &environment_);
  if (status == nullptr) return;
  const std::unique_ptr<OrtStatus, void (*)(OrtStatus*)> owned(status, api_->ReleaseStatus);
  const std::string message = api_->GetErrorMessage(status);
  throw invalid_engine("ONNX Runtime cannot start: " + message, path);
}

OnnxRuntime::~OnnxRuntime() { api_->ReleaseEnv(environment_); }

}  // namespace xformc
