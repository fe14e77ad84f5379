// Unicode's normalization form C.
#pragma once

#include <string>
#include <string_view>

namespace xformc {

// The text in form C, which is UTF-8, as the package tokenizers makes it: with its version of Unicode.
std::string composed(std::string_view text);

// The characters of the text in form D.
std::u32string decomposed(std::string_view text);

}  // namespace xformc
