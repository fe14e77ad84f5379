#include "unicode.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "unicode_tables.h"

namespace xformc {
namespace {

struct Range {
  char32_t first, last;
};

// Python's str.isspace.
constexpr Range SPACES[] = {{0x9, 0xd},       {0x1c, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
                            {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};

// Control and format characters, private use, and noncharacters: what may change how a terminal shows a message.
constexpr Range UNPRINTABLE[] = {
    {0x0, 0x1f},      {0x7f, 0x9f},     {0xad, 0xad},     {0x600, 0x605},     {0x61c, 0x61c},     {0x6dd, 0x6dd},
    {0x70f, 0x70f},   {0x180e, 0x180e}, {0x200b, 0x200f}, {0x202a, 0x202e},   {0x2060, 0x206f},   {0xe000, 0xf8ff},
    {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0xe0fff}, {0xf0000, 0x10ffff}};

template <size_t N>
bool within(const Range (&ranges)[N], char32_t character) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [=](const Range& range) { return range.first <= character && character <= range.last; });
}

// Whether a table of ranges in ascending order has the character.
template <size_t N>
bool in_table(const char32_t (&table)[N][2], char32_t character) {
  const auto after = std::upper_bound(std::begin(table), std::end(table), character,
                                      [](char32_t one, const char32_t (&range)[2]) { return one < range[0]; });
  return after != std::begin(table) && character <= (*std::prev(after))[1];
}

// The size of the longest beginning of a character at `at`, in bytes that are no character.
size_t beginning(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t index) { return static_cast<unsigned char>(bytes[index]); };
  const unsigned char first = byte(at);
  if (first < 0xc2 || first > 0xf4) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  // The second byte rules out overlong forms, surrogates, and what is beyond Unicode.
  const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  size_t size = 1;
  while (size < length && at + size < bytes.size()) {
    const unsigned char next = byte(at + size);
    if (next < (size == 1 ? low : 0x80) || next > (size == 1 ? high : 0xbf)) break;
    ++size;
  }
  return size;
}

}  // namespace

bool is_letter(char32_t character) {
  if (character < 0x80) return (character | 0x20) >= 'a' && (character | 0x20) <= 'z';
  return in_table(LETTERS, character);
}

bool is_number(char32_t character) {
  if (character < 0x80) return character >= '0' && character <= '9';
  return in_table(NUMBERS, character);
}

bool is_white_space(char32_t character) { return in_table(WHITE_SPACE, character); }

void append_character(char32_t character, std::string& text) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (character < 0x80) return add(character);
  if (character < 0x800) {
    add(0xc0 | character >> 6);
  } else {
    if (character < 0x10000) {
      add(0xe0 | character >> 12);
    } else {
      add(0xf0 | character >> 18);
      add(0x80 | (character >> 12 & 0x3f));
    }
    add(0x80 | (character >> 6 & 0x3f));
  }
  add(0x80 | (character & 0x3f));
}

std::string lossy_utf8(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    if (next_character(bytes, at) != NO_CHARACTER) {
      text.append(bytes, begin, at - begin);
    } else {
      text += "\xef\xbf\xbd";
      at = begin + beginning(bytes, begin);
    }
  }
  return text;
}

char32_t next_character(std::string_view text, size_t& position) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char first = byte(position);
  if (first < 0x80) {
    ++position;
    return first;
  }
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  constexpr char32_t SMALLEST[] = {0, 0, 0x80, 0x800, 0x10000};
  if (first < 0xc0 || first > 0xf7 || position + length > text.size()) return NO_CHARACTER;
  char32_t character = first & (0xff >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(position + i) & 0xc0) != 0x80) return NO_CHARACTER;
    character = character << 6 | (byte(position + i) & 0x3f);
  }
  if (character < SMALLEST[length] || character > 0x10ffff || (character >= 0xd800 && character < 0xe000)) {
    return NO_CHARACTER;
  }
  position += length;
  return character;
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (next_character(text, i) == NO_CHARACTER) return false;
  }
  return true;
}

bool is_printable(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const char32_t character = next_character(text, i);
    if (character == NO_CHARACTER || within(UNPRINTABLE, character)) return false;
    if (character != ' ' && within(SPACES, character)) return false;
  }
  return true;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t at = i;
    if (!within(SPACES, next_character(text, i))) continue;
    if (at > begin) words.push_back(text.substr(begin, at - begin));
    begin = i;
  }
  if (text.size() > begin) words.push_back(text.substr(begin));
  return words;
}

}  // namespace xformc
