// Streams of tokens: the text that a language model adds to a prompt, in pieces as it is sampled.
#pragma once

#include <functional>

#include "rows.h"
#include "session.h"
#include "tokenizer.h"
#include "values.h"

namespace xformc {

constexpr int64_t MOST_AT_ONCE = 1024;

// Throws Failure for an engine without streams of tokens.
void require_streams(const Manifest& manifest);

// Gets a piece of text, and what has been written so far; may throw.
using TakePiece = std::function<void(const std::string& piece, const Hypothesis& so_far)>;

// Continues a prompt in calls of at most `at_once` tokens by the models of a stream, which `model` has. The pieces
// together are the text that it returns. A piece comes when the text has grown by whole characters. Throws Failure.
Hypothesis stream_tokens(const Model& model, const Stopper& stopper, const Input& written, const Vocabulary& vocabulary,
                         const Row& prompt, const SampleOptions& options, int64_t at_once, const TakePiece& take);

}  // namespace xformc
