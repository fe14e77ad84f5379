// WordPiece: the longest pieces of a word, from its beginning on.
#pragma once

#include "word_model.h"

namespace xformc {

class WordPieces : public WordModel {
 public:
  std::string inside = "##";  // begins the pieces that do not begin a word
  size_t longest = 100;       // characters of a word; a longer one is unknown

  void encode(std::string_view word, std::vector<Part>& parts) const override;
};

}  // namespace xformc
