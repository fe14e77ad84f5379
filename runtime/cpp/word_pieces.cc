#include "word_pieces.h"

#include <algorithm>

namespace xformc {
namespace {

bool is_inside(char byte) { return (byte & 0xc0) == 0x80; }

}  // namespace

void WordPieces::encode(std::string_view word, std::vector<Part>& parts) const {
  const auto size =
      static_cast<size_t>(std::count_if(word.begin(), word.end(), [](char one) { return !is_inside(one); }));
  std::vector<Part> found;
  std::string piece;
  for (size_t begin = 0; begin < word.size() && size <= longest;) {
    size_t end = word.size();
    for (; end > begin; --end) {
      if (end < word.size() && is_inside(word[end])) continue;
      piece.assign(begin > 0 ? inside : "").append(word, begin, end - begin);
      const auto known = pieces.find(piece);
      if (known == pieces.end()) continue;
      found.push_back({known->second, end - begin});
      break;
    }
    if (end == begin) {
      found.clear();
      break;
    }
    begin = end;
  }
  if (found.empty()) found = {{unknown.value(), word.size()}};
  parts.insert(parts.end(), found.begin(), found.end());
}

}  // namespace xformc
