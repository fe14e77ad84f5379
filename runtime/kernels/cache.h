// Recognizes a buffer that Cache made: only such memory may be written in place (docs/kernels.md).
#pragma once

#include "kernel.h"

namespace xformc {

// Writes this process's mark at the end of a new buffer of this shape, with elements of `size` bytes.
void mark_cache(void* data, const Shape& shape, int64_t size);

// Whether the memory has that mark. It is lost when the last position of the last slot is written.
bool is_cache(const void* data, const Shape& shape, int64_t size);

}  // namespace xformc
