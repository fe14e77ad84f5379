#include "alignment.h"

#include <algorithm>
#include <set>

#include "failure.h"

namespace xformc {
namespace {

// The links by the weights [tokens of the text, tokens of the source], whose rows have `stride` numbers.
Links linked(const std::vector<Words>& source, const std::vector<Words>& target, const float* weights, int64_t stride) {
  Links links;
  links.targets = static_cast<int64_t>(target.size());
  links.sources = static_cast<int64_t>(source.size());
  std::set<Words> pairs;
  for (int64_t i = 0; i < links.targets; ++i) {
    const float* row = weights + i * stride;
    links.attention.insert(links.attention.end(), row, row + links.sources);
    int64_t best = -1;
    for (int64_t j = 0; j < links.sources; ++j) {
      if (source[j].first < source[j].second && (best < 0 || row[j] > row[best])) best = j;
    }
    if (best < 0 || target[i].first >= target[i].second) continue;
    links.tokens.insert(links.tokens.end(), {best, i});
    for (int64_t left = source[best].first; left < source[best].second; ++left) {
      for (int64_t right = target[i].first; right < target[i].second; ++right) pairs.emplace(left, right);
    }
  }
  for (const auto& [left, right] : pairs) links.words.insert(links.words.end(), {left, right});
  return links;
}

// Whether there is nothing to align.
bool is_nothing(const Row& row, const Ids& text) { return text.empty() || row.fields[0].positions == 0; }

}  // namespace

void require_alignments(const Manifest& manifest) {
  if (manifest.aligns()) return;
  throw invalid_argument(manifest.name + " has no alignments", "",
                         std::string("they need attention to the source; ") + BUILD_FOR_CPUS);
}

std::vector<Links> align(const Model& model, const Stopper& stopper, const Manifest& manifest, const Rows& rows,
                         const std::vector<Ids>& texts, const std::vector<std::vector<Words>>& words) {
  const Input& target = manifest.written();
  std::vector<Links> found(texts.size());
  std::vector<Row> read;
  read.reserve(texts.size());
  Rows some, written;
  int64_t longest_source = 0, longest = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (is_nothing(*rows[i], texts[i])) continue;
    Ids ids = target.special.begun();
    ids.insert(ids.end(), texts[i].begin(), texts[i].end() - 1);
    const auto positions = static_cast<int64_t>(ids.size());
    longest = std::max(longest, positions);
    longest_source = std::max(longest_source, rows[i]->fields[0].positions);
    read.push_back({{{std::move(ids), {}, positions}}});
    written.push_back(&read.back());
    some.push_back(rows[i]);
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].empty() && is_nothing(*rows[i], texts[i])) found[i] = linked(rows[i]->words, words[i], nullptr, 0);
  }
  if (read.empty()) return found;
  Batch batch;
  const Input& source = manifest.given[0];
  stack(batch, source.name, source, 0, some, source.special.fill());
  stack(batch, target.name, target, 0, written, target.special.fill());
  const std::vector<Output> outputs = model.alignments->run(batch.feeds, stopper);
  std::vector<int64_t> shape;
  const float* weights = outputs[0].floats({static_cast<int64_t>(some.size()), longest, longest_source}, shape);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (is_nothing(*rows[i], texts[i])) continue;
    found[i] = linked(rows[i]->words, words[i], weights, longest_source);
    weights += longest * longest_source;
  }
  return found;
}

}  // namespace xformc
