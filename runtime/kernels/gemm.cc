// Chooses the routines for this machine.
#include "gemm.h"

#include <cstdlib>
#include <string>

#include "kernel.h"

namespace xformc {

const Routines& routines() {
  const char* wanted = std::getenv("XFORMC_KERNELS_ISA");
  const std::string name = wanted == nullptr ? "" : wanted;
  require(name.empty() || name == "portable" || name == "avx2", "XFORMC_KERNELS_ISA must be portable or avx2");
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  require(name != "avx2" || avx2, "XFORMC_KERNELS_ISA=avx2, but this machine has no AVX2");
  if (avx512 && name.empty()) return AVX512;
  if (avx2 && name != "portable") return AVX2;
#else
  require(name != "avx2", "XFORMC_KERNELS_ISA=avx2, but this machine has no AVX2");
#endif
  return PORTABLE;
}

}  // namespace xformc
