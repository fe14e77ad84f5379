#include "stops.h"

#include <algorithm>
#include <utility>

#include "failure.h"
#include "numbers.h"
#include "texts.h"
#include "unicode.h"

namespace xformc {
namespace {

constexpr size_t MOST = 64, LONGEST = 1000;
constexpr std::string_view REPLACEMENT = "\xef\xbf\xbd";

// The size of the first `most` characters of a text in bytes.
size_t first_characters(std::string_view text, size_t most) {
  size_t at = 0;
  for (size_t count = 0; at < text.size() && count < most; ++count) next_character(text, at);
  return at;
}

// A text in an error, cut if it is long.
std::string shown(std::string_view text) {
  constexpr size_t MOST_SHOWN = 40;
  const std::string quoted = "'" + std::string(text) + "'";
  const size_t size = first_characters(quoted, MOST_SHOWN);
  return size == quoted.size() ? quoted : quoted.substr(0, size) + "...";
}

}  // namespace

Stops::Stops(const xformc_text* texts, size_t count) {
  if (count > 0 && texts == nullptr) throw invalid_argument("the stop strings are NULL");
  if (count > MOST) {
    throw invalid_argument(
        "there are " + std::to_string(count) + " stop strings; at most " + std::to_string(MOST) + " are allowed", "",
        "leave some out");
  }
  for (size_t i = 0; i < count; ++i) {
    const std::string_view one = valid_text(texts[i], "stop");
    if (one.empty() || first_characters(one, LONGEST) < one.size()) {
      throw invalid_argument(
          "a stop string must be a text of 1 to " + grouped(LONGEST) + " characters, not " + shown(one), "",
          "a text ends before it; leave it out if there is none");
    }
    if (one.find(REPLACEMENT) != one.npos) {
      throw invalid_argument("a stop string cannot have U+FFFD, which stands for bytes that are no character yet", "",
                             "leave it out");
    }
    texts_.emplace_back(one);
  }
}

bool Stops::found(std::string_view text) const {
  return std::any_of(texts_.begin(), texts_.end(), [&](const std::string& one) { return text.find(one) != text.npos; });
}

std::string_view Stops::cut(std::string_view text) const {
  std::pair<size_t, size_t> first = {text.npos, text.size()};  // where it ends, and where it begins
  for (const std::string& one : texts_) {
    const size_t at = text.find(one);
    if (at != text.npos) first = std::min(first, {at + one.size(), at});
  }
  return text.substr(0, first.second);
}

std::string_view Stops::settled(std::string_view text) const {
  size_t open = 0;
  for (const std::string& one : texts_) {
    for (size_t size = std::min(one.size() - 1, text.size()); size > open; --size) {
      if (text.substr(text.size() - size) == std::string_view(one).substr(0, size)) open = size;
    }
  }
  return text.substr(0, text.size() - open);
}

}  // namespace xformc
