// How a buffer that Cache made is known again: only such memory may be written in place (docs/kernels.md).
#pragma once

#include "kernel.h"

namespace xformc {

// Puts this process's mark at the end of a new buffer of that shape.
void mark_cache(float* data, const Shape& shape);

// Whether the memory has that mark. It is lost when the last position of the last slot is written.
bool is_cache(const float* data, const Shape& shape);

}  // namespace xformc
