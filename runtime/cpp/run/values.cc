#include "values.h"

#include <cmath>

#include "../numbers.h"
#include "characters.h"

namespace run {
namespace {

// As numpy rounds, which differs from printf in the last digit of some numbers.
std::string rounded(float number) {
  const double value = std::nearbyint(static_cast<double>(number) * 1e6) / 1e6;
  return std::isfinite(value) ? xformc::shortest(value) : json_number(value);
}

// The list of axis `axis`, from the number `next` on.
std::string list(const xformc::Value& value, size_t axis, size_t& next) {
  if (axis == value.shape.size()) return rounded(value.numbers[next++]);
  std::string text;
  for (int64_t i = 0; i < value.shape[axis]; ++i) text += (i > 0 ? ", " : "") + list(value, axis + 1, next);
  return "[" + text + "]";
}

}  // namespace

std::string json_array(const xformc::Value& value) {
  size_t next = 0;
  return list(value, 0, next);
}

std::string numbers_line(const xformc::Value& value, bool vectors) {
  const size_t rank = value.shape.size();
  const size_t width = rank > 1 || (rank == 1 && vectors) ? static_cast<size_t>(value.shape.back()) : 1;
  std::string text;
  for (size_t i = 0; i < value.numbers.size(); ++i) {
    text += (i == 0 ? "" : i % width == 0 ? " " : ",") + xformc::rough(value.numbers[i]);
  }
  return text;
}

}  // namespace run
