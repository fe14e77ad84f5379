// The options that edit the scores of tokens, in a search and in sampling (docs/search.md).
#pragma once

#include <cstdint>

#include "document.h"
#include "include/xformc.h"
#include "manifest.h"
#include "rows.h"
#include "tokenizer.h"

namespace xformc {

// What a call gives; the fields are those of xformc_search_options and xformc_sample_options.
struct GivenEdits {
  const xformc_token* suppress_tokens;
  size_t suppress_count;
  int64_t no_repeat_ngram_size;
  double repetition_penalty, presence_penalty, frequency_penalty;
};

template <typename Options>
GivenEdits given_edits(const Options& given) {
  return {given.suppress_tokens,    given.suppress_count,   given.no_repeat_ngram_size,
          given.repetition_penalty, given.presence_penalty, given.frequency_penalty};
}

// The values in engine.json; none where the engine lacks the input.
Edits read_edits(const Document& document);

// The call's edits, completed with the engine's, `unset`. At least `rest` tokens must be left. Throws Failure for a
// value out of range, for what is no token of the written text, and for an edit that the engine lacks.
Edits resolve_edits(const GivenEdits& given, const Edits& unset, const Manifest& manifest, const Tokenizer& tokenizer,
                    int64_t rest);

// Adds the edits that the engine has as inputs.
void add_edits(Batch& batch, const Edits& edits);

// Writes the engine's edits to the fields of the caller's options; `tokens` are those of suppress_tokens.
template <typename Options>
void show_edits(const Edits& edits, const std::vector<xformc_token>& tokens, Options& options) {
  static const xformc_token NONE = {};
  options.suppress_tokens = tokens.empty() ? &NONE : tokens.data();
  options.suppress_count = tokens.size();
  options.no_repeat_ngram_size = edits.no_repeat_ngram_size.value_or(0);
  options.repetition_penalty = edits.repetition_penalty.value_or(1);
  options.presence_penalty = edits.presence_penalty.value_or(0);
  options.frequency_penalty = edits.frequency_penalty.value_or(0);
}

}  // namespace xformc
