// The characters of messages and of JSON.
#pragma once

#include <string>
#include <string_view>

namespace run {

// A message in which nothing steers the terminal: what is not printable is written as in Python's repr.
std::string printable(std::string_view message);

// A string in JSON, with its quotes; only what must be escaped is.
std::string json_string(std::string_view text);

// A number in JSON, rounded to 6 decimal places.
std::string json_number(double value);

// The text without the white space at its end.
std::string_view without_end_spaces(std::string_view text);

// The words of the text, with a space between them.
std::string joined_words(std::string_view text);

// The text with its line breaks replaced by spaces.
std::string one_line(std::string text);

}  // namespace run
