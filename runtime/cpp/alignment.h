// The alignments of translations with their sources, by the attention of the model that wrote them (docs/search.md).
#pragma once

#include "rows.h"
#include "session.h"
#include "values.h"
#include "words.h"

namespace xformc {

// Throws Failure for an engine without alignments.
void require_alignments(const Manifest& manifest);

// The links of each text with the row at its place, which has the words of the source. `words` are those of each token.
std::vector<Links> align(const Model& model, const Stopper& stopper, const Manifest& manifest, const Rows& rows,
                         const std::vector<Ids>& texts, const std::vector<std::vector<Words>>& words);

}  // namespace xformc
