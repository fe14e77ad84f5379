// UTF-8 text: whether it is valid and printable, and its words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace xformc {

constexpr char32_t NO_CHARACTER = 0xffffffff;

// Reads the character at `position`, which is inside the text, and moves past it; NO_CHARACTER, without moving, for bytes
// that are not UTF-8.
char32_t next_character(std::string_view text, size_t& position);

// Appends a character's bytes.
void append_character(char32_t character, std::string& text);

// The text of bytes that may not be UTF-8: U+FFFD for each longest beginning of a character, and for each other byte.
std::string lossy_utf8(std::string_view bytes);

// Unicode's letters, numbers and white space, as the package tokenizers has them; Python's spaces are a few more.
bool is_letter(char32_t character);
bool is_number(char32_t character);
bool is_white_space(char32_t character);

// Whether the text is UTF-8 without surrogates and overlong forms.
bool is_utf8(std::string_view text);

// Whether every character of a UTF-8 text can be shown: no control, format or separator character but the space.
bool is_printable(std::string_view text);

// The words between white space, of all kinds that Unicode has.
std::vector<std::string_view> split_words(std::string_view text);

}  // namespace xformc
