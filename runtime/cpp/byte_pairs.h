// Byte pair encoding: the pieces of a word, by merging neighbours in the order of a list.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "word_model.h"

namespace xformc {

// The piece that stands for a byte, `<0x00>` to `<0xFF>`.
std::string byte_piece(int byte);

class BytePairs : public WordModel {
 public:
  // Two pieces and what they merge to.
  struct Merge {
    int64_t left, right, whole;
  };

  // Characters without a piece are left out unless there is an unknown token.
  bool fuses_unknown = false;       // neighbouring unknown characters are one token
  bool whole_words = false;         // a word that is a piece is not merged
  std::string word_end = "";        // ends the last character of a word, as pieces have it
  std::vector<int64_t> bytes = {};  // the pieces of all 256 bytes, for characters without a piece; or none

  // Sets the merges, the first of them first.
  void add_merges(const std::vector<Merge>& merges);

  // As `WordModel`, in time that grows with the size n of a word as n log n.
  void encode(std::string_view word, std::vector<Part>& parts) const override;

 private:
  struct Merged {
    size_t rank;
    int64_t whole;
  };
  struct Symbol {
    int64_t id;
    std::ptrdiff_t before, after;  // its neighbours; -1 for none
    size_t size;                   // 0 after it has been merged
  };

  std::vector<Symbol> symbols_of(std::string_view word) const;
  const Merged* merged(int64_t left, int64_t right) const;

  std::unordered_map<uint64_t, Merged> merges_;
};

}  // namespace xformc
