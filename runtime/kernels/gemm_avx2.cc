// The routines of gemm.h for machines with AVX2, FMA and F16C.
#if defined(__x86_64__)
#include "gemm_avx2.h"

namespace xformc {
const Routines AVX2 = ROUTINES;
}
#endif
