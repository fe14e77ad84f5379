// Prompts as lines of JSON, which may have line breaks.
#pragma once

#include <string>

namespace run {

// The prompt of a line, which is `"a text"`, `{"text": "a text"}` or `{"prompt": "a text"}`. Throws Error for another line.
std::string json_prompt(const std::string& line, size_t number);

}  // namespace run
