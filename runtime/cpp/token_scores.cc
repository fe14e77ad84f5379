#include "token_scores.h"

#include <algorithm>

#include "failure.h"

namespace xformc {

void require_token_scores(const Manifest& manifest) {
  if (manifest.has_file(SCORES)) return;
  throw invalid_argument(manifest.name + " has no scores of tokens", "", BUILD_FOR_CPUS);
}

std::vector<std::vector<float>> token_scores(const Model& model, const Stopper& stopper, const Manifest& manifest,
                                             const Rows& rows, const std::vector<Ids>& texts) {
  const Input& text = manifest.written();
  const Ids begun = text.special.begun();
  std::vector<std::vector<float>> scores;
  std::vector<Row> read;
  Rows some, written;
  int64_t longest = 0;
  read.reserve(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    scores.emplace_back(texts[i].size());
    Ids ids = begun;
    ids.insert(ids.end(), texts[i].begin(), texts[i].end());
    const auto positions = static_cast<int64_t>(ids.size());
    if (positions < 2) continue;  // nothing comes before the only token, or there is none
    longest = std::max(longest, positions - 1);
    read.push_back({{{std::move(ids), {}, positions}}});
    written.push_back(&read.back());
    some.push_back(rows[i]);
  }
  if (read.empty()) return scores;
  Batch batch;
  for (size_t i = 0; i < manifest.given.size(); ++i) {
    const Input& input = manifest.given[i];
    stack(batch, input.name, input, i, some, input.special.fill());
  }
  stack(batch, text.name, text, 0, written, text.special.fill());
  const std::vector<Output> outputs = model.scores->run(batch.feeds, stopper);
  std::vector<int64_t> shape;
  const float* found = outputs[0].floats({static_cast<int64_t>(some.size()), longest}, shape);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() + begun.size() < 2) continue;
    const size_t first = 1 - begun.size();
    std::copy(found, found + (texts[i].size() - first), scores[i].begin() + static_cast<int64_t>(first));
    found += longest;
  }
  return scores;
}

float total(const std::vector<float>& scores) {
  float sum = 0;
  for (const float score : scores) sum += score;
  return sum;
}

}  // namespace xformc
