#include "kernel.h"
namespace xformc { void add_embed(Ort::CustomOpDomain&) {} }
