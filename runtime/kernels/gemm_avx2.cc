// The routines of gemm.h for machines with AVX2, FMA and F16C.
#if defined(__x86_64__)
#include "gemm_avx2.h"

namespace xformc {
const Routines AVX2 = routines_of("AVX2, FMA, F16C");
}
#endif
