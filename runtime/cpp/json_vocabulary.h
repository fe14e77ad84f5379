// Vocabularies of a tokenizer.json: byte pairs of bytes or characters, and whole words.
#pragma once

#include "tokenizer_json.h"
#include "vocabulary.h"

namespace xformc {

// One tokenizer.json. Its template, if it has one, says which special tokens surround a text.
class JsonVocabulary : public Vocabulary {
 public:
  // Throws Failure for a file that is damaged or does not fit a vocabulary of `size`, and Unsupported.
  JsonVocabulary(const std::filesystem::path& path, int64_t size, SpecialTokens special);

  Ids encode_open(std::string_view text) const override;
  std::string piece(int64_t id) const override;
  Spelled spelled(std::string_view text) const override;

 protected:
  std::string text_of(const Ids& ids) const override;

 private:
  struct Tokens {
    Ids ids;
    Spelled spelled;
  };

  void set_template();
  Tokens tokens_of(std::string_view text) const;
  void add_words(std::string_view text, bool first, Tokens& tokens) const;
  std::string rewritten(std::string_view text) const;
  void trim(Tokens& tokens, bool added) const;

  const TokenizerJson file_;
  const int64_t size_;
  std::unordered_map<int64_t, const AddedToken*> added_;
  std::unique_ptr<const AddedTokens> first_, second_;  // those found in the text itself, and in what is rewritten
};

}  // namespace xformc
