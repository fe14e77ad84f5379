// The routines of gemm.h for machines with AVX2, FMA, F16C and the dot product of bytes without AVX-512 (AVX-VNNI).
#if defined(XFORMC_AVXVNNI)
#include "gemm_avx2.h"

namespace xformc {
const Routines AVXVNNI = routines_of("AVX2, FMA, F16C, AVX-VNNI");
}
#endif
