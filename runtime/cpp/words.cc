#include "words.h"

#include <algorithm>
#include <string>

#include "unicode.h"

namespace xformc {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  const std::vector<std::string_view> found = split_words(text);
  return {found.begin(), found.end()};
}

}  // namespace

std::vector<Words> read_words(const Vocabulary& vocabulary, std::string_view text, int64_t count) {
  const auto [whole, spans] = vocabulary.spelled(text);
  std::vector<size_t> begins, ends;  // of words
  for (const std::string_view word : split_words(whole)) {
    begins.push_back(static_cast<size_t>(word.data() - whole.data()));
    ends.push_back(begins.back() + word.size());
  }
  std::vector<Words> found(vocabulary.before().size(), {0, 0});
  for (const auto& [begin, end] : spans) {
    const int64_t first = std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin();
    const int64_t last = std::lower_bound(begins.begin(), begins.end(), end) - begins.begin();
    found.push_back(first < last ? Words{first, last} : Words{0, 0});
  }
  found.resize(found.size() + vocabulary.after().size(), {0, 0});
  const auto tail = static_cast<int64_t>(vocabulary.tail());
  if (static_cast<int64_t>(found.size()) > count) found.erase(found.begin() + (count - tail), found.end() - tail);
  return found;
}

std::vector<Words> written_words(const Vocabulary& vocabulary, const Ids& ids) {
  std::vector<Words> found;
  size_t start = 0;
  int64_t first = 0;
  std::vector<std::string> last;
  for (size_t i = 0; i < ids.size(); ++i) {
    std::vector<std::string> now = words_of(
        vocabulary.decode({ids.begin() + static_cast<int64_t>(start), ids.begin() + static_cast<int64_t>(i) + 1}));
    size_t same = 0;
    while (same < last.size() && same < now.size() && last[same] == now[same]) ++same;
    if (same == std::min(last.size(), now.size())) same = last.size();  // one begins with the other
    const auto known = static_cast<int64_t>(same), all = static_cast<int64_t>(now.size());
    found.push_back(now != last ? Words{first + known, first + all} : Words{0, 0});
    if (!last.empty() && same == last.size() && last.size() < now.size()) {
      start = i;
      first += known;
      now.erase(now.begin(), now.begin() + known);
    }
    last = std::move(now);
  }
  return found;
}

}  // namespace xformc
