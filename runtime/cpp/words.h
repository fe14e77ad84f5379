// The words of a text that each of its tokens is part of; a word is what stands between spaces.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "vocabulary.h"

namespace xformc {

// The words of a token: the first, counted from 0, and the one after the last. Both are equal if it has none.
using Words = std::pair<int64_t, int64_t>;

// The words of the tokens of a text that is read, its special tokens included, of which there may be too many: then it has
// been cut before its end token.
std::vector<Words> read_words(const Vocabulary& vocabulary, std::string_view text, int64_t count);

// The words of the tokens of a text that is written; tokens that add nothing to it have none. No more than a word is
// decoded again with each token.
std::vector<Words> written_words(const Vocabulary& vocabulary, const Ids& ids);

}  // namespace xformc
