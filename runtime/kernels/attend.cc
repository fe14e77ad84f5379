#include "kernel.h"
namespace xformc { void add_attention(Ort::CustomOpDomain&) {} }
