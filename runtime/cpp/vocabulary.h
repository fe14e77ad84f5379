// The tokens of a text: what every kind of vocabulary does, and what each says for itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manifest.h"

namespace xformc {

using Ids = std::vector<int64_t>;

// A text as its tokens have it, and where each token stands in it, in bytes.
struct Spelled {
  std::string text;
  std::vector<std::pair<size_t, size_t>> spans;
};

// The vocabulary of one input. Texts must be UTF-8; what a vocabulary lacks becomes the unknown token.
class Vocabulary {
 public:
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;
  virtual ~Vocabulary() = default;

  // The ids of a text that may go on: without special tokens.
  virtual Ids encode_open(std::string_view text) const = 0;

  // The piece of an id as its file has it; "" for an id without one.
  virtual std::string piece(int64_t id) const = 0;

  // The tokens of encode_open(text) in the text, as the vocabulary's normalization has it.
  virtual Spelled spelled(std::string_view text) const = 0;

  // The ids of a text as a model reads them: with the special tokens around them.
  Ids encode(std::string_view text) const;

  // One id for each word between spaces, without an end token; a word of several tokens is unknown.
  Ids encode_words(std::string_view text) const;

  // The text of ids without special tokens; an unknown token leaves one of the spaces around it.
  std::string decode(const Ids& ids) const;

  // The special tokens before and after a text.
  const Ids& before() const { return before_; }
  const Ids& after() const { return after_; }

  // The number of tokens that stay at the end of a text that is cut: the end token, or none.
  size_t tail() const { return special_.after().size(); }

 protected:
  explicit Vocabulary(SpecialTokens special) : special_(std::move(special)), after_(special_.after()) {}

  // The text of ids that are not special.
  virtual std::string text_of(const Ids& ids) const = 0;

  const SpecialTokens special_;
  Ids before_, after_;
};

}  // namespace xformc
