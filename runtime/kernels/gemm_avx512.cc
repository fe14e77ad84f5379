// The routines of gemm.h for machines with AVX-512 and its dot products of bytes (VNNI).
#if defined(__x86_64__)
#include "gemm_avx512.h"

namespace xformc {
const Routines AVX512 = routines_of("AVX-512, VNNI");
}
#endif
