// Encodes texts as token ids within a limit, with the line number in every error.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "failure.h"
#include "options.h"
#include "task.h"
#include "tokenizer.h"

namespace xformc {

// The maximum tokens of a text: the model's own limit, or 1/share of a batch's tokens.
struct Limit {
  int64_t tokens;
  int64_t share;  // 0 for the model's own
};

// The limit of a text that is read at once: attention's memory is quadratic, so without a limit of the model's own it
// is a quarter of a batch.
Limit whole_limit(std::optional<int64_t> longest, int64_t max_batch_tokens);

// The limit of a prompt, which is read token by token; a model's limit leaves one token to generate.
Limit prompt_limit(std::optional<int64_t> longest, int64_t max_batch_tokens);

// The limit of a text to score, which is read in parts.
Limit scored_limit(std::optional<int64_t> longest, int64_t max_batch_tokens);

// The error of a text with so many tokens, and the warning that it was cut.
Failure too_long(const std::string& place, int64_t count, Limit limit);
void warn_of_cut(const std::string& place, int64_t count, Limit limit, const Log& log);

// The text that the tokens add to the prompt.
std::string added_text(const Vocabulary& vocabulary, const Ids& prompt, const Ids& tokens);

// The text, at this place of the input. Throws Failure if it is NULL or not UTF-8.
std::string_view valid_text(const xformc_text& text, const std::string& place);

// The ids of the text on this line. With `truncate`, a text that is too long is cut before its last `tail` ids, with a
// warning; otherwise, and for a text that is not UTF-8, throws Failure.
Ids encode_line(size_t line, const xformc_text& text, const std::function<Ids(std::string_view)>& encode, Limit limit,
                bool truncate, size_t tail, const Log& log);

// Encodes examples that have a text for each of the engine's given inputs; that of a sound is the path of its .wav file.
// If words have results, or inputs along them, each has one id.
class ExampleReader {
 public:
  // The manifest and the tokenizer must live as long as the reader.
  ExampleReader(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log, const Batching& batching);

  // The row of the texts on this line. Throws Failure as encode_line and read_wav.
  Row encode(size_t line, const xformc_text* texts) const;

 private:
  Field tokens(size_t line, const Input& input, const xformc_text& text) const;
  Field sound(size_t line, const Input& input, const xformc_text& path) const;
  size_t tail(const Input& input) const;  // the number of tokens after a text
  void check_along(size_t line, size_t index, const Row& row) const;

  const std::vector<Input>& inputs_;
  const bool words_, aligned_;
  const Tokenizer& tokenizer_;
  const Log log_;
  const Batching batching_;
};

}  // namespace xformc
