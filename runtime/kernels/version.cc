// What the library says of itself, in C: read by runtime/library.py before ONNX Runtime is given the library.
#include <string>

#define XFORMC_EXPORT extern "C" __attribute__((visibility("default")))

// "VERSION SOURCES": the version of xformc, and the hash of the sources that the library was compiled from.
XFORMC_EXPORT const char* xformc_kernels_version() { return XFORMC_KERNELS_VERSION; }

// The instruction sets of this processor that the kernels have code for, with spaces between.
XFORMC_EXPORT const char* xformc_kernels_instructions() {
  static const std::string found = [] {
    std::string names;
#if defined(__x86_64__)
    const auto add = [&names](bool has, const char* name) {
      if (has) names += names.empty() ? name : std::string(" ") + name;
    };
    __builtin_cpu_init();
    add(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), "avx2");
    add(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"), "avx512");
    add(__builtin_cpu_supports("avx512vnni"), "vnni");
#endif
    return names;
  }();
  return found.c_str();
}
