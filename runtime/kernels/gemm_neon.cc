// The routines of gemm.h for every 64-bit ARM.
#if defined(__aarch64__)
#include "gemm_neon.h"

namespace xformc {
const Routines NEON = routines_of("NEON");
}
#endif
