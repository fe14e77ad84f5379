#include "byte_pairs.h"

#include <queue>
#include <tuple>
#include <utility>

#include "unicode.h"

namespace xformc {
namespace {

// Two neighbours to merge: the earliest in the list first, then the leftmost.
struct Candidate {
  size_t rank, at;
  int64_t whole;

  bool operator<(const Candidate& other) const { return std::tie(rank, at) > std::tie(other.rank, other.at); }
};

uint64_t key_of(int64_t left, int64_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint64_t>(right);
}

}  // namespace

std::string byte_piece(int byte) {
  static constexpr char DIGITS[] = "0123456789ABCDEF";
  return std::string("<0x") + DIGITS[byte / 16] + DIGITS[byte % 16] + ">";
}

void BytePairs::add_merges(const std::vector<Merge>& merges) {
  merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    merges_[key_of(merges[rank].left, merges[rank].right)] = {rank, merges[rank].whole};
  }
}

const BytePairs::Merged* BytePairs::merged(int64_t left, int64_t right) const {
  const auto found = merges_.find(key_of(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::vector<BytePairs::Symbol> BytePairs::symbols_of(std::string_view word) const {
  std::vector<Symbol> symbols;
  const auto add = [&](int64_t id, size_t size) {
    const auto at = static_cast<std::ptrdiff_t>(symbols.size());
    symbols.push_back({id, at - 1, at + 1, size});
  };
  size_t strange = 0;  // bytes of an unknown token that is not added yet
  std::string piece;
  for (size_t at = 0; at < word.size();) {
    const size_t begin = at;
    next_character(word, at);
    piece.assign(word, begin, at - begin);
    if (at == word.size()) piece += word_end;
    const auto found = pieces.find(piece);
    if (found == pieces.end() && !bytes.empty()) {
      for (const char byte : piece) add(bytes[static_cast<unsigned char>(byte)], 1);
      continue;
    }
    if (strange > 0 && (found != pieces.end() || !fuses_unknown)) add(*unknown, std::exchange(strange, 0));
    if (found != pieces.end()) {
      add(found->second, at - begin);
    } else if (unknown) {
      strange += at - begin;
    }
  }
  if (strange > 0) add(*unknown, strange);
  if (!symbols.empty()) symbols.back().after = -1;
  return symbols;
}

void BytePairs::encode(std::string_view word, std::vector<Part>& parts) const {
  if (whole_words) {
    const auto found = pieces.find(std::string(word));
    if (found != pieces.end()) {
      parts.push_back({found->second, word.size()});
      return;
    }
  }
  std::vector<Symbol> symbols = symbols_of(word);
  std::priority_queue<Candidate> queue;
  const auto consider = [&](std::ptrdiff_t left, std::ptrdiff_t right) {
    if (left < 0 || right < 0) return;
    const Merged* found = merged(symbols[left].id, symbols[right].id);
    if (found != nullptr) queue.push({found->rank, static_cast<size_t>(left), found->whole});
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    consider(static_cast<std::ptrdiff_t>(i), static_cast<std::ptrdiff_t>(i) + 1);
  }
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.at];
    if (left.size == 0 || left.after < 0) continue;  // it was merged, or is the last one now
    Symbol& right = symbols[left.after];
    const Merged* found = merged(left.id, right.id);
    if (found == nullptr || found->whole != best.whole) continue;  // one of them has changed
    left = {best.whole, left.before, right.after, left.size + right.size};
    right.size = 0;
    if (left.after >= 0) symbols[left.after].before = static_cast<std::ptrdiff_t>(best.at);
    consider(left.before, static_cast<std::ptrdiff_t>(best.at));
    consider(static_cast<std::ptrdiff_t>(best.at), left.after);
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.size > 0) parts.push_back({symbol.id, symbol.size});
  }
}

}  // namespace xformc
