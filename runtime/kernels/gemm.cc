// Chooses the routines for this machine.
#include "gemm.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>

#include "kernel.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace xformc {
#if defined(__x86_64__)
namespace {

// Not every compiler's __builtin_cpu_supports knows it. A virtual machine takes long to answer, so it is asked once.
bool has_f16c() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  }();
  return has;
}

// Dot products in a processor's second list of features.
constexpr unsigned AVX_VNNI = 1u << 4, AVX512_BF16 = 1u << 5;

bool has_dot_product(unsigned feature) {
  static const unsigned features = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) == 0 ? 0 : a;
  }();
  return (features & feature) != 0;
}

[[maybe_unused]] Routines with_dense(const char* instructions, const DenseRoutines& dense) {
  Routines routines = AVX512;
  routines.instructions = instructions;
  routines.dense_rows = dense.rows;
  routines.dense_tiles = dense.tiles;
  routines.chunk = dense.chunk;
  routines.pair_size = dense.pair_size;
  routines.pack_pairs = dense.pack_pairs;
  routines.pair_tiles = dense.pair_tiles;
  if (dense.pack_int8 != nullptr) routines.pack_int8 = dense.pack_int8;
  if (dense.int8_tiles != nullptr) routines.int8_tiles = dense.int8_tiles;
  return routines;
}

}  // namespace

#if defined(XFORMC_AVX512BF16)
const Routines& avx512bf16() {
  static const Routines routines = with_dense("AVX-512, VNNI, BF16", AVX512BF16);
  return routines;
}
#endif

#if defined(XFORMC_AMX)
const Routines& amx() {
  static const Routines routines = with_dense("AVX-512, VNNI, BF16, AMX", AMX);
  return routines;
}
#endif
#endif

const Routines& routines() {
  const char* wanted = std::getenv("XFORMC_KERNELS_ISA");
  const std::string name = wanted == nullptr ? "" : wanted;
  if (name == "portable") return PORTABLE;
  const char* const names[] = {"", "avx2", "avxvnni", "avx512", "avx512bf16", "amx", "neon", "dotprod"};
  require(std::find(std::begin(names), std::end(names), name) != std::end(names),
          "XFORMC_KERNELS_ISA must be portable, avx2, avxvnni, avx512, avx512bf16, amx, neon or dotprod");
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
#if defined(XFORMC_AMX)
  if (avx512 && has_dot_product(AVX512_BF16) && (name.empty() || name == "amx") && may_use_tiles()) return amx();
#endif
#if defined(XFORMC_AVX512BF16)
  if (avx512 && has_dot_product(AVX512_BF16) && (name.empty() || name == "avx512bf16")) return avx512bf16();
#endif
  if (avx512 && (name.empty() || name == "avx512")) return AVX512;
#if defined(XFORMC_AVXVNNI)
  if (avx2 && has_dot_product(AVX_VNNI) && (name.empty() || name == "avxvnni")) return AVXVNNI;
#endif
  if (avx2 && (name.empty() || name == "avx2")) return AVX2;
#elif defined(__aarch64__)
  const bool dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  if (dotprod && (name.empty() || name == "dotprod")) return DOTPROD;
  if (name.empty() || name == "neon") return NEON;
#endif
  if (!name.empty()) fail("XFORMC_KERNELS_ISA=" + name + ", but this machine lacks these instructions");
  return PORTABLE;
}

}  // namespace xformc
