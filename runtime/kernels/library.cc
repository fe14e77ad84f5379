// The entry point that ONNX Runtime calls when the library is registered with a session.
#include "library.h"

#include <map>
#include <mutex>

#include "kernel.h"

namespace xformc {
namespace {

// The domain for the sessions of one ONNX Runtime. It lives to the end: nothing says when the last session is gone.
OrtCustomOpDomain* shared_domain(const OrtApi& api) {
  static std::mutex mutex;
  static std::map<const OrtApi*, OrtCustomOpDomain*> domains;
  const std::lock_guard<std::mutex> lock(mutex);
  OrtCustomOpDomain*& domain = domains[&api];
  if (domain == nullptr) domain = make_domain(api);
  return domain;
}

}  // namespace

OrtCustomOpDomain* make_domain(const OrtApi& api) {
  Ort::table = &api;
  Ort::CustomOpDomain domain("xformc");
  for (const Operator* op : operators()) domain.Add(op);
  return domain.Get();
}

}  // namespace xformc

extern "C" __attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                               const OrtApiBase* base) {
  const OrtApi* api = base->GetApi(ORT_VERSION);
  if (api == nullptr) return base->GetApi(1)->CreateStatus(ORT_FAIL, "xformc's kernels need a newer ONNX Runtime");
  return Ort::StatusOf(*api, [&] { Ort::ThrowOnError(api->AddCustomOpDomain(options, xformc::shared_domain(*api))); });
}
