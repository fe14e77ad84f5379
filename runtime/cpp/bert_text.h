// Texts as BERT's vocabularies have them: without controls and accents, in lower case, with ideographs apart.
#pragma once

#include <string>
#include <string_view>

namespace xformc {

struct BertText {
  bool cleans = true, parts_ideographs = true, strips_accents = true, lowers = true;
};

// The text that the package tokenizers makes by BertNormalizer.
std::string bert_text(std::string_view text, const BertText& how);

// A character's lower case, of which one has two characters.
void append_lower(char32_t character, std::u32string& text);

// Whether BertPreTokenizer takes a character for a word.
bool is_punctuation(char32_t character);

}  // namespace xformc
