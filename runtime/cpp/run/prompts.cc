#include "prompts.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "../include/xformc.hpp"

namespace run {
namespace {

constexpr int DEEPEST = 900;  // levels of lists and objects
constexpr const char* HINT = "write \"a text\" or {\"text\": \"a text\"}";

// Reads one JSON value (RFC 8259), of which only the prompt is kept.
class Json {
 public:
  Json(const std::string& line, size_t number) : line_(line), place_("line " + std::to_string(number)) {}

  std::string prompt() {
    std::optional<std::string> found = value(0);
    skip_spaces();
    if (at_ != line_.size()) fail("more than one value");
    if (found) return *found;
    throw xformc::Error(XFORMC_INVALID_ARGUMENT, "the line has no text", place_, HINT);
  }

 private:
  // A value; returns a text, or that of an object on the first level.
  std::optional<std::string> value(int level) {
    if (level > DEEPEST) fail("nested too deeply");
    skip_spaces();
    const char next = at_ < line_.size() ? line_[at_] : '\0';
    if (next == '"') return text();
    if (next == '{') return object(level);
    if (next == '[') return list(level), std::nullopt;
    for (const char* word : {"true", "false", "null"}) {
      if (take(word)) return std::nullopt;
    }
    return number(), std::nullopt;
  }

  std::optional<std::string> object(int level) {
    std::map<std::string, std::optional<std::string>> found;
    ++at_;
    skip_spaces();
    if (take("}")) return std::nullopt;
    do {
      skip_spaces();
      if (at_ == line_.size() || line_[at_] != '"') fail("expected a name in double quotes");
      const std::string name = text();
      skip_spaces();
      if (!take(":")) fail("expected a colon");
      skip_spaces();
      const bool is_text = at_ < line_.size() && line_[at_] == '"';
      std::optional<std::string> one = value(level + 1);
      found[name] = is_text ? one : std::nullopt;
      skip_spaces();
    } while (take(","));
    if (!take("}")) fail("expected a comma or the end of an object");
    for (const auto& [name, one] : found) {
      if (level > 0 || name == "text" || name == "prompt") continue;
      throw xformc::Error(XFORMC_INVALID_ARGUMENT, name + " is no option of a text", place_,
                          "xformc-run takes no options in lines; `xformc generate` does");
    }
    if (level > 0 || found.empty()) return std::nullopt;
    if (found.size() > 1) {
      throw xformc::Error(XFORMC_INVALID_ARGUMENT, "the line has a text and a prompt", place_,
                          "both are the text: leave one out");
    }
    return found.begin()->second;
  }

  void list(int level) {
    ++at_;
    skip_spaces();
    if (take("]")) return;
    do {
      value(level + 1);
      skip_spaces();
    } while (take(","));
    if (!take("]")) fail("expected a comma or the end of a list");
  }

  void number() {
    const size_t begin = at_;
    take("-");
    if (!take("0") && !digits()) {
      at_ = begin;
      fail("expected a value");
    }
    if (take(".") && !digits()) fail("expected a digit");
    if (take("e") || take("E")) {
      if (!take("+")) take("-");
      if (!digits()) fail("expected a digit");
    }
  }

  bool digits() {
    const size_t begin = at_;
    while (at_ < line_.size() && '0' <= line_[at_] && line_[at_] <= '9') ++at_;
    return at_ > begin;
  }

  std::string text() {
    std::string found;
    for (++at_; at_ < line_.size() && line_[at_] != '"'; ++at_) {
      if (static_cast<unsigned char>(line_[at_]) < 0x20) fail("a control character in a text");
      if (line_[at_] == '\\') {
        escape(found);
      } else {
        found += line_[at_];
      }
    }
    if (!take("\"")) fail("a text without an end");
    return found;
  }

  // At a backslash; afterwards at the last character of the escape.
  void escape(std::string& found) {
    constexpr std::string_view LETTERS = "\"\\/bfnrt", CHARACTERS = "\"\\/\b\f\n\r\t";
    const char letter = ++at_ < line_.size() ? line_[at_] : '\0';
    if (letter == 'u') return append(code_point(), found);
    const size_t known = LETTERS.find(letter);
    if (letter == '\0' || known == std::string_view::npos) fail("an escape that there is not");
    found += CHARACTERS[known];
  }

  uint32_t code_point() {
    const uint32_t first = hexadecimal();
    if (first < 0xd800 || first > 0xdbff || line_.compare(at_ + 1, 2, "\\u") != 0) return first;
    const size_t before = at_;
    at_ += 2;
    const uint32_t second = hexadecimal();
    if (0xdc00 <= second && second <= 0xdfff) return 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
    at_ = before;
    return first;
  }

  // At the letter u; afterwards at the last of four digits.
  uint32_t hexadecimal() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      const char digit = ++at_ < line_.size() ? line_[at_] : '\0';
      const bool is_letter = ('a' <= (digit | 32)) && ((digit | 32) <= 'f');
      if (!is_letter && (digit < '0' || digit > '9')) fail("expected four hexadecimal digits");
      value = value * 16 + static_cast<uint32_t>(is_letter ? (digit | 32) - 'a' + 10 : digit - '0');
    }
    return value;
  }

  // A half of a pair is written, too: the library says that it is no Unicode text.
  static void append(uint32_t code, std::string& found) {
    const auto byte = [&](uint32_t bits) { found += static_cast<char>(bits); };
    if (code < 0x80) return byte(code);
    if (code < 0x800) {
      byte(0xc0 | (code >> 6));
    } else if (code < 0x10000) {
      byte(0xe0 | (code >> 12));
      byte(0x80 | ((code >> 6) & 0x3f));
    } else {
      byte(0xf0 | (code >> 18));
      byte(0x80 | ((code >> 12) & 0x3f));
      byte(0x80 | ((code >> 6) & 0x3f));
    }
    byte(0x80 | (code & 0x3f));
  }

  bool take(std::string_view word) {
    if (line_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }

  void skip_spaces() {
    while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t' || line_[at_] == '\r')) ++at_;
  }

  [[noreturn]] void fail(const std::string& reason) const {
    throw xformc::Error(XFORMC_INVALID_ARGUMENT, "not JSON: " + reason + " at byte " + std::to_string(at_ + 1), place_,
                        HINT);
  }

  const std::string& line_;
  const std::string place_;
  size_t at_ = 0;
};

}  // namespace

std::string json_prompt(const std::string& line, size_t number) { return Json(line, number).prompt(); }

}  // namespace run
