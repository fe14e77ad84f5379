// What makes tokens of the words of a text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace xformc {

// A token of a word, and its bytes of it.
struct Part {
  int64_t id;
  size_t size;
};

class WordModel {
 public:
  virtual ~WordModel() = default;

  // Appends the tokens of a word.
  virtual void encode(std::string_view word, std::vector<Part>& parts) const = 0;

  std::unordered_map<std::string, int64_t> pieces;
  std::optional<int64_t> unknown = {};  // what stands for what is no piece
};

// Words are tokens.
class WholeWords : public WordModel {
 public:
  void encode(std::string_view word, std::vector<Part>& parts) const override {
    const auto found = pieces.find(std::string(word));
    parts.push_back({found == pieces.end() ? unknown.value() : found->second, word.size()});
  }
};

}  // namespace xformc
