// The operators as ONNX Runtime takes them.
#pragma once

#include "ort_abi.h"

namespace xformc {

// The version of the operators that docs/kernels.md defines, the only one whose engines run. It is raised for every new
// operator and every change of an operator's inputs, outputs or results.
constexpr int OPERATORS = 1;

// A new domain with all operators, which must outlive the sessions that it is added to. Throws Ort::Exception.
OrtCustomOpDomain* make_domain(const OrtApi& api);

}  // namespace xformc
