#include "kernel.h"
namespace xformc { void add_project(Ort::CustomOpDomain&) {} }
