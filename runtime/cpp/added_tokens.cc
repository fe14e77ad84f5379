#include "added_tokens.h"

#include <algorithm>

#include "unicode.h"

namespace xformc {
namespace {

// The beginning of the white space that ends at `end`, no earlier than `least`.
size_t space_before(std::string_view text, size_t end, size_t least) {
  while (end > least) {
    size_t begin = end - 1;
    while (begin > least && (text[begin] & 0xc0) == 0x80) --begin;
    size_t at = begin;
    if (!is_white_space(next_character(text, at))) break;
    end = begin;
  }
  return end;
}

size_t space_after(std::string_view text, size_t at) {
  for (size_t next = at; at < text.size(); at = next) {
    if (!is_white_space(next_character(text, next))) break;
  }
  return at;
}

uint64_t edge(size_t node, char byte) { return uint64_t{node} << 8 | static_cast<unsigned char>(byte); }

}  // namespace

AddedTokens::AddedTokens(const std::vector<std::pair<std::string, const AddedToken*>>& tokens) : ends_(1) {
  for (const auto& [text, token] : tokens) {
    size_t node = 0;
    for (const char byte : text) {
      node = next_.emplace(edge(node, byte), ends_.size()).first->second;
      if (node == ends_.size()) ends_.push_back(nullptr);
    }
    if (node == 0) continue;
    begins_[static_cast<unsigned char>(text[0])] = true;
    if (ends_[node] == nullptr) ends_[node] = token;
  }
}

std::vector<Section> AddedTokens::sections(std::string_view text) const {
  std::vector<Section> found;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const auto [token, size] = longest(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    const size_t begin = token->takes_space_before ? std::max(space_before(text, at, done), done) : at;
    const size_t end = token->takes_space_after ? space_after(text, at + size) : at + size;
    if (begin > done) found.push_back({nullptr, done, begin});
    found.push_back({token, begin, std::max(begin, end)});
    done = end;
    at += size;  // the next token may begin with the white space that this one took
  }
  if (done < text.size()) found.push_back({nullptr, done, text.size()});
  return found;
}

std::pair<const AddedToken*, size_t> AddedTokens::longest(std::string_view text, size_t at) const {
  if (!begins_[static_cast<unsigned char>(text[at])]) return {nullptr, 0};
  std::pair<const AddedToken*, size_t> best = {nullptr, 0};
  size_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto next = next_.find(edge(node, text[i]));
    if (next == next_.end()) break;
    node = next->second;
    if (ends_[node] != nullptr) best = {ends_[node], i + 1 - at};
  }
  return best;
}

}  // namespace xformc
