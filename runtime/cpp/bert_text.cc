#include "bert_text.h"

#include <algorithm>
#include <iterator>

#include "normal_form.h"
#include "unicode.h"
#include "unicode_tables.h"

namespace xformc {
namespace {

// The row of a table of ranges, the first and the last character in front, that has the character; null for none.
template <size_t N, size_t M>
const char32_t* row_with(const char32_t (&table)[N][M], char32_t character) {
  const auto after = std::upper_bound(std::begin(table), std::end(table), character,
                                      [](char32_t one, const char32_t (&row)[M]) { return one < row[0]; });
  if (after == std::begin(table)) return nullptr;
  const char32_t* row = *std::prev(after);
  return character <= row[1] ? row : nullptr;
}

std::u32string characters_of(std::string_view text) {
  std::u32string found;
  for (size_t at = 0; at < text.size();) found += next_character(text, at);
  return found;
}

std::string utf8_of(const std::u32string& text) {
  std::string found;
  for (const char32_t character : text) append_character(character, found);
  return found;
}

std::u32string cleaned(const std::u32string& text) {
  std::u32string found;
  for (const char32_t character : text) {
    if (row_with(DROPPED, character) == nullptr) found += is_white_space(character) ? U' ' : character;
  }
  return found;
}

std::u32string parted(const std::u32string& text) {
  std::u32string found;
  for (const char32_t character : text) {
    const bool apart = row_with(IDEOGRAPHS, character) != nullptr;
    if (apart) found += U' ';
    found += character;
    if (apart) found += U' ';
  }
  return found;
}

}  // namespace

std::string bert_text(std::string_view text, const BertText& how) {
  std::u32string found = characters_of(text);
  if (how.cleans) found = cleaned(found);
  if (how.parts_ideographs) found = parted(found);
  if (how.strips_accents) {
    found = decomposed(utf8_of(found));
    found.erase(
        std::remove_if(found.begin(), found.end(), [](char32_t one) { return row_with(MARKS, one) != nullptr; }),
        found.end());
  }
  if (how.lowers) {
    std::u32string lower;
    for (const char32_t character : found) append_lower(character, lower);
    found = std::move(lower);
  }
  return utf8_of(found);
}

void append_lower(char32_t character, std::u32string& text) {
  const char32_t* row = row_with(LOWER, character);
  if (character == 0x130) {
    text += U"i\u0307";
  } else {
    text += row != nullptr && (character - row[0]) % row[2] == 0 ? character + row[3] : character;
  }
}

bool is_punctuation(char32_t character) { return row_with(PUNCTUATION, character) != nullptr; }

}  // namespace xformc
