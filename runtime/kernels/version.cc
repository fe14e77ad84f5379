// The library's version in C: runtime/library.py reads it before ONNX Runtime loads the library.
#include <exception>
#include <string>

#include "gemm.h"
#include "library.h"

#define XFORMC_EXPORT extern "C" __attribute__((visibility("default")))

// "VERSION SOURCES": the version of xformc, and the hash of the sources that the library was compiled from.
XFORMC_EXPORT const char* xformc_kernels_version() { return XFORMC_KERNELS_VERSION; }

// The version of the operators: xformc only loads libraries of its own version.
XFORMC_EXPORT const char* xformc_kernels_operators() {
  static const std::string text = std::to_string(xformc::OPERATORS);
  return text.c_str();
}

// The instruction sets of this machine that the kernels use, or "error: " and a reason if XFORMC_KERNELS_ISA is bad.
XFORMC_EXPORT const char* xformc_kernels_instructions() {
  try {
    return xformc::routines().instructions;
  } catch (const std::exception& error) {
    static const std::string message = std::string("error: ") + error.what();
    return message.c_str();
  }
}
