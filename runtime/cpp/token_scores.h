// The log probability of each token of given texts, by the engine's model of them.
#pragma once

#include <vector>

#include "manifest.h"
#include "rows.h"
#include "session.h"

namespace xformc {

// Throws Failure for an engine without scores of tokens.
void require_token_scores(const Manifest& manifest);

// Scores texts, of which each belongs to the inputs of its row, as one batch. The model has its `scores`. A text that
// nothing comes before, as there is no begin token, has its first token with certainty.
std::vector<std::vector<float>> token_scores(const Model& model, const Stopper& stopper, const Manifest& manifest,
                                             const Rows& rows, const std::vector<Ids>& texts);

// Their sum, added one by one in float32, as sampling adds them.
float total(const std::vector<float>& scores);

}  // namespace xformc
