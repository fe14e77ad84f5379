#include "vocabulary.h"

#include <algorithm>
#include <iterator>

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
  Ids plain;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(plain), [this](int64_t id) { return !special_.has(id); });
  const std::string text = text_of(plain);
  if (std::none_of(ids.begin(), ids.end(), [this](int64_t id) { return id == special_.unknown; })) return text;
  std::string joined;
  for (const std::string_view word : split_words(text)) joined.append(joined.empty() ? "" : " ").append(word);
  return joined;
}

}  // namespace xformc
