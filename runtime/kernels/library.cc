// The entry point that ONNX Runtime calls when the library is registered with a session.
#include "kernel.h"

extern "C" __attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                               const OrtApiBase* base) {
  const OrtApi* api = base->GetApi(ORT_VERSION);
  if (api == nullptr) return base->GetApi(1)->CreateStatus(ORT_FAIL, "xformc's kernels need a newer ONNX Runtime");
  return Ort::StatusOf(*api, [&] {
    Ort::InitApi(api);
    static const Ort::CustomOpDomain* domain = [] {
      auto* made = new Ort::CustomOpDomain("xformc");
      xformc::add_project(*made);
      xformc::add_embed(*made);
      xformc::add_attention(*made);
      xformc::add_cache(*made);
      xformc::add_candidates(*made);
      xformc::add_project_candidates(*made);
      xformc::add_screen_candidates(*made);
      xformc::add_advance(*made);
      return made;
    }();
    domain->AddTo(options);
  });
}
