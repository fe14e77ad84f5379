// The routines of gemm.h for a 64-bit ARM with the dot product of bytes.
#if defined(__aarch64__)
#include "gemm_neon.h"

namespace xformc {
const Routines DOTPROD = routines_of("NEON, dot product");
}
#endif
