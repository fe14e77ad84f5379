#include "characters.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "../numbers.h"
#include "../unicode.h"

namespace run {
namespace {

std::string formatted(const char* format, uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string escaped(uint32_t value) {
  if (value == '\t') return "\\t";
  if (value == '\r') return "\\r";
  return formatted(value < 0x100 ? "\\x%02x" : value < 0x10000 ? "\\u%04x" : "\\U%08x", value);
}

}  // namespace

std::string printable(std::string_view message) {
  std::string shown;
  for (size_t next = 0; next < message.size();) {
    const size_t at = next;
    const char32_t value = xformc::next_character(message, next);
    const std::string_view character = message.substr(at, next - at);
    if (value == xformc::NO_CHARACTER) {
      shown += escaped(0xdc00 + static_cast<unsigned char>(message[next++]));
    } else if (value == '\n' || xformc::is_printable(character)) {
      shown += character;
    } else {
      shown += escaped(value);
    }
  }
  return shown;
}

std::string json_string(std::string_view text) {
  constexpr std::string_view SPECIAL = "\"\\\n\r\t\b\f", LETTERS = "\"\\nrtbf";
  std::string written = "\"";
  for (const char character : text) {
    const size_t special = SPECIAL.find(character);
    if (special != std::string_view::npos) {
      written += {'\\', LETTERS[special]};
    } else if (static_cast<unsigned char>(character) < 0x20) {
      written += formatted("\\u%04x", static_cast<unsigned char>(character));
    } else {
      written += character;
    }
  }
  return written + "\"";
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";  // JSON has no other name for it
  char text[400];
  std::snprintf(text, sizeof text, "%.6f", value);
  return xformc::shortest(std::strtod(text, nullptr));
}

std::string_view without_end_spaces(std::string_view text) {
  const auto words = xformc::split_words(text);
  if (words.empty()) return "";
  return text.substr(0, static_cast<size_t>(words.back().data() + words.back().size() - text.data()));
}

std::string joined_words(std::string_view text) {
  std::string joined;
  for (const std::string_view word : xformc::split_words(text)) joined.append(joined.empty() ? "" : " ").append(word);
  return joined;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\r', ' ');
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace run
