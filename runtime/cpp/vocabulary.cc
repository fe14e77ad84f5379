#include "vocabulary.h"

#include "unicode.h"

namespace xformc {

Ids Vocabulary::encode(std::string_view text) const {
  const Ids open = encode_open(text);
  Ids ids = before_;
  ids.insert(ids.end(), open.begin(), open.end());
  ids.insert(ids.end(), after_.begin(), after_.end());
  return ids;
}

Ids Vocabulary::encode_words(std::string_view text) const {
  Ids ids;
  for (const std::string_view word : split_words(text)) {
    const Ids found = encode_open(word);
    ids.push_back(found.size() == 1 ? found[0] : special_.unknown.value_or(0));
  }
  return ids;
}

std::string Vocabulary::decode(const Ids& ids) const {
  Ids known;
  std::vector<size_t> places;  // of unknown tokens, in `known`
  for (const int64_t id : ids) {
    if (!special_.has(id)) known.push_back(id);
    if (id == special_.unknown && (places.empty() || places.back() != known.size())) places.push_back(known.size());
  }
  std::string text = text_of(known);
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    known.resize(*place);
    const size_t at = text_of(known).size();
    if (at == 0 || at > text.size() || text[at - 1] != ' ') continue;
    if (at == text.size() || text[at] == ' ') text.erase(at - 1, 1);
  }
  return text;
}

}  // namespace xformc
