#include "numbers.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace xformc {

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string shortest(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char text[32];
  const double size = std::fabs(number);
  const auto format =
      size != 0 && (size < 1e-4 || size >= 1e16) ? std::chars_format::scientific : std::chars_format::fixed;
  std::string result(text, std::to_chars(text, text + sizeof text, number, format).ptr);
  return result.find_first_of(".e") == std::string::npos ? result + ".0" : result;
}

std::string rough(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number, std::chars_format::general, 6).ptr};
}

}  // namespace xformc
