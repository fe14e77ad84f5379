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

uint32_t code_point(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(character[i])); };
  uint32_t value = character.size() == 1 ? byte(0) : byte(0) & (0xffu >> (character.size() + 1));
  for (size_t i = 1; i < character.size(); ++i) value = value << 6 | (byte(i) & 0x3f);
  return value;
}

std::string escaped(uint32_t value) {
  if (value == '\t') return "\\t";
  if (value == '\r') return "\\r";
  return formatted(value < 0x100 ? "\\x%02x" : value < 0x10000 ? "\\u%04x" : "\\U%08x", value);
}

}  // namespace

size_t character_size(std::string_view text) {
  for (size_t size = 1; size <= std::min<size_t>(4, text.size()); ++size) {
    if (xformc::is_utf8(text.substr(0, size))) return size;
  }
  return 0;
}

std::string printable(std::string_view message) {
  std::string shown;
  while (!message.empty()) {
    const size_t size = character_size(message);
    const std::string_view character = message.substr(0, std::max<size_t>(1, size));
    message.remove_prefix(character.size());
    if (size == 0) {
      shown += escaped(0xdc00 + static_cast<unsigned char>(character[0]));
    } else if (character == "\n" || xformc::is_printable(character)) {
      shown += character;
    } else {
      shown += escaped(code_point(character));
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
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char text[400];
  std::snprintf(text, sizeof text, "%.6f", value);
  return xformc::shortest(std::strtod(text, nullptr));
}

std::string_view without_end_spaces(std::string_view text) {
  const auto words = xformc::split_words(text);
  if (words.empty()) return "";
  return text.substr(0, static_cast<size_t>(words.back().data() + words.back().size() - text.data()));
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\r', ' ');
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace run
