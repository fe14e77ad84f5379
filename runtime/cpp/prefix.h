// What the texts of a search begin with: prefixes, and whole texts, whose scores are wanted.
#pragma once

#include <vector>

#include "include/xformc.h"
#include "manifest.h"
#include "tokenizer.h"

namespace xformc {

// The tokens of the prefixes in the options of a call, with the end token if they are whole texts. Throws Failure for one
// that does not fit, and for an engine without prefixes.
std::vector<Ids> encode_prefixes(const xformc_search_options& given, const Manifest& manifest,
                                 const Tokenizer& tokenizer);

}  // namespace xformc
