#include "normal_form.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <unordered_map>
#include <vector>

#include "unicode.h"
#include "unicode_tables.h"

namespace xformc {
namespace {

constexpr char32_t FIRST = 0x300;  // what is before it neither decomposes for good nor changes places

// Syllables of Hangul are counted: first and middle sounds, and last ones, of which there may be none.
constexpr char32_t SYLLABLES = 0xac00, LEADING = 0x1100, VOWELS = 0x1161, TRAILING = 0x11a7;
constexpr char32_t LEADING_COUNT = 19, VOWEL_COUNT = 21, TRAILING_COUNT = 28;
constexpr char32_t SYLLABLE_COUNT = LEADING_COUNT * VOWEL_COUNT * TRAILING_COUNT;

// The row of a table whose first column ascends; null for none.
template <size_t N, size_t M>
const char32_t* row_of(const char32_t (&table)[N][M], char32_t character) {
  const auto found = std::lower_bound(std::begin(table), std::end(table), character,
                                      [](const char32_t (&row)[M], char32_t one) { return row[0] < one; });
  return found != std::end(table) && (*found)[0] == character ? *found : nullptr;
}

int combining_class(char32_t character) {
  static const auto* classes = [] {
    auto* found = new std::unordered_map<char32_t, int>;
    for (const auto& [first, last, number] : COMBINING_CLASSES) {
      for (char32_t one = first; one <= last; ++one) found->emplace(one, static_cast<int>(number));
    }
    return found;
  }();
  if (character < FIRST) return 0;
  const auto found = classes->find(character);
  return found == classes->end() ? 0 : found->second;
}

void decompose(char32_t character, std::u32string& text) {
  if (character - SYLLABLES < SYLLABLE_COUNT) {
    const char32_t index = character - SYLLABLES;
    text += LEADING + index / (VOWEL_COUNT * TRAILING_COUNT);
    text += VOWELS + index / TRAILING_COUNT % VOWEL_COUNT;
    if (index % TRAILING_COUNT != 0) text += TRAILING + index % TRAILING_COUNT;
  } else if (const char32_t* pair = row_of(PAIRS, character)) {
    decompose(pair[1], text);  // no deeper than four
    decompose(pair[2], text);
  } else if (const char32_t* others = row_of(DECOMPOSITIONS, character)) {
    for (size_t i = 1; i < std::size(DECOMPOSITIONS[0]) && others[i] != 0; ++i) text += others[i];
  } else {
    text += character;
  }
}

// What two characters compose to; 0 for nothing.
char32_t compose(char32_t first, char32_t second) {
  static const auto* pairs = [] {
    auto* found = new std::unordered_map<uint64_t, char32_t>;
    for (const auto& [whole, one, two] : PAIRS) found->emplace(uint64_t{one} << 32 | two, whole);
    return found;
  }();
  if (first - LEADING < LEADING_COUNT && second - VOWELS < VOWEL_COUNT) {
    return SYLLABLES + ((first - LEADING) * VOWEL_COUNT + (second - VOWELS)) * TRAILING_COUNT;
  }
  if (first - SYLLABLES < SYLLABLE_COUNT && (first - SYLLABLES) % TRAILING_COUNT == 0 &&
      second - TRAILING - 1 < TRAILING_COUNT - 1) {
    return first + (second - TRAILING);
  }
  const auto found = pairs->find(uint64_t{first} << 32 | second);
  return found == pairs->end() ? 0 : found->second;
}

// Sorts marks by their class, between characters that are none.
void sort_marks(std::u32string& text) {
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + static_cast<std::ptrdiff_t>(begin), text.begin() + static_cast<std::ptrdiff_t>(end),
                     [](char32_t one, char32_t other) { return combining_class(one) < combining_class(other); });
    begin = end + 1;
  }
}

}  // namespace

std::u32string decomposed(std::string_view text) {
  std::u32string whole;
  for (size_t at = 0; at < text.size();) decompose(next_character(text, at), whole);
  sort_marks(whole);
  return whole;
}

std::string composed(std::string_view text) {
  std::u32string whole;
  bool plain = true;
  for (size_t at = 0; at < text.size();) {
    const char32_t character = next_character(text, at);
    plain = plain && character < FIRST;
    decompose(character, whole);
  }
  if (plain) return std::string(text);
  sort_marks(whole);
  std::u32string found;
  size_t starter = std::u32string::npos;  // the last character of class 0, to which marks are added
  int last = 0;                           // the class of what was kept since
  for (const char32_t character : whole) {
    const int number = combining_class(character);
    const bool next_to = starter != std::u32string::npos && starter + 1 == found.size();
    if (starter != std::u32string::npos && (next_to || last < number)) {
      if (const char32_t both = compose(found[starter], character)) {
        found[starter] = both;
        continue;
      }
    }
    if (number == 0) starter = found.size();
    last = number;
    found += character;
  }
  std::string result;
  for (const char32_t character : found) append_character(character, result);
  return result;
}

}  // namespace xformc
