// The operators of the search: Candidates, Advance and the Cache of a step's attention (docs/kernels.md).
#include "kernel.h"

namespace xformc {
namespace {

struct Cache {
  explicit Cache(const OrtKernelInfo*) {}

  void Compute(OrtKernelContext* raw) {
    Ort::KernelContext context(raw);
    const Ort::ConstValue sizes = context.GetInput(0);
    const int64_t* data = sizes.GetTensorData<int64_t>();
    context.GetOutput(0, Shape(data, data + sizes.GetTensorTypeAndShapeInfo().GetElementCount()));
  }
};

}  // namespace

void add_search(Ort::CustomOpDomain& domain) {
  static const Operator<Cache> cache("Cache", {INT64}, {FLOAT});
  domain.Add(&cache);
  add_candidates(domain);
  add_advance(domain);
}

}  // namespace xformc
