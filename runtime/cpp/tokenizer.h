// Converts text to token ids and back with the engine's SentencePiece models, which also apply Unicode's NFKC.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manifest.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace xformc {

using Ids = std::vector<int64_t>;

// The vocabulary of one input. A character outside it becomes the unknown token.
class Vocabulary {
 public:
  // Throws Failure for a file that SentencePiece cannot read, or that does not fit a vocabulary of `size`.
  Vocabulary(const std::filesystem::path& path, int64_t size, SpecialTokens special = {});
  ~Vocabulary();

  // The ids of a text, with the end token. The text must be UTF-8.
  Ids encode(std::string_view text) const;

  // The ids of a text that may go on: without the end token.
  Ids encode_open(std::string_view text) const;

  // One id for each word between spaces, without an end token; a word of several tokens is unknown.
  Ids encode_words(std::string_view text) const;

  // The piece of an id: U+2581 is a space; <unk>, <s> and </s> are special. "" for an id without one.
  std::string piece(int64_t id) const;

  // The pieces of a text, as the model's normalization has it, with spaces.
  std::vector<std::string> spelled(std::string_view text) const;

  // The text of ids without special tokens; an unknown token leaves no double space.
  std::string decode(const Ids& ids) const;

 private:
  // The id of the tag that is a text's first word, and what follows it. Tags are control pieces that begin with a space,
  // such as those of languages; other control pieces are never found in a text.
  std::pair<std::optional<int>, std::string_view> tagged(std::string_view text) const;

  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  int64_t size_;
  SpecialTokens special_;
};

// The vocabulary of each input and each result that has a tokenizer; those with the same one share it.
using Tokenizer = std::map<std::string, std::shared_ptr<const Vocabulary>>;

// Whether there is a tokenizer that this library reads: a SentencePiece model, not a tokenizer.json.
bool is_readable(const std::string& file);

Tokenizer load_tokenizer(const std::filesystem::path& folder, const Manifest& manifest);

}  // namespace xformc
