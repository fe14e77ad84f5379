// Numbers as the messages of both runtimes write them.
#pragma once

#include <cfenv>
#include <cstdint>
#include <string>

namespace xformc {

// 1234567 as "1,234,567".
std::string grouped(int64_t number);

// The shortest decimal that reads back as the same double, with ".0" after a whole number.
std::string shortest(double number);

// Six significant digits, as printf's %g, whatever the locale.
std::string rough(double number);

// The default floating-point environment while it lives, and then that of the caller again, which ONNX Runtime may have
// changed: it sets how denormals are treated in the thread that opens a model.
class DefaultFloats {
 public:
  DefaultFloats() { std::fegetenv(&caller_), std::fesetenv(FE_DFL_ENV); }
  ~DefaultFloats() { std::fesetenv(&caller_); }
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

 private:
  std::fenv_t caller_;
};

}  // namespace xformc
