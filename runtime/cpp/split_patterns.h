// The regular expressions that cut texts into words before their tokens are found, each written out as a function.
#pragma once

#include <string_view>

namespace xformc {

// The end of the word that begins at `at`, which is inside the text. The words cover the whole text.
using WordEnd = size_t (*)(std::string_view text, size_t at);

// The function of a regular expression that is known by its text; null for another one.
WordEnd word_end_of(std::string_view expression);

// The regular expression of GPT-2, which tokenizers' ByteLevel has built in.
WordEnd gpt2_words();

}  // namespace xformc
