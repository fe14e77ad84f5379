// The tokens that a tokenizer.json adds to its model, which are found in a text before it is cut into words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace xformc {

struct AddedToken {
  std::string content;
  int64_t id;
  bool special;             // it is no part of a text
  bool normalized;          // it is found in the normalized text
  bool takes_space_before;  // the white space beside it belongs to it
  bool takes_space_after;
};

// A part of a text: an added token, or what is between them.
struct Section {
  const AddedToken* token;  // null for text
  size_t begin, end;
};

// Finds tokens: the leftmost, and of those the longest.
class AddedTokens {
 public:
  // The tokens must live as long, each under the text that is looked for.
  explicit AddedTokens(const std::vector<std::pair<std::string, const AddedToken*>>& tokens);

  // The sections of a text, without empty ones.
  std::vector<Section> sections(std::string_view text) const;

 private:
  // The token that begins at `at`, and its size; null for none.
  std::pair<const AddedToken*, size_t> longest(std::string_view text, size_t at) const;

  std::unordered_map<uint64_t, size_t> next_;  // of a node and a byte; the root is 0
  std::vector<const AddedToken*> ends_;        // of each node
  bool begins_[256] = {};
};

}  // namespace xformc
