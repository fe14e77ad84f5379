// Vocabularies of SentencePiece, whose models also apply Unicode's NFKC.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "vocabulary.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace xformc {

// One SentencePiece model. In its pieces U+2581 is a space; <unk>, <s> and </s> are special.
class SentencePieceVocabulary : public Vocabulary {
 public:
  // Throws Failure for a file that SentencePiece cannot read, or that does not fit a vocabulary of `size`.
  SentencePieceVocabulary(const std::filesystem::path& path, int64_t size, SpecialTokens special = {});
  ~SentencePieceVocabulary() override;

  Ids encode_open(std::string_view text) const override;
  std::string piece(int64_t id) const override;
  Spelled spelled(std::string_view text) const override;

 protected:
  std::string text_of(const Ids& ids) const override;

 private:
  // The id of the tag that is a text's first word, and what follows it. Tags are control pieces that begin with a space,
  // such as those of languages; other control pieces are never found in a text.
  std::pair<std::optional<int>, std::string_view> tagged(std::string_view text) const;

  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  int64_t size_;
};

}  // namespace xformc
