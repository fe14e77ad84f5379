// The task translation: a search for each text, inside the model.
#include <algorithm>
#include <cmath>
#include <limits>

#include "task.h"
#include "texts.h"
#include "written.h"

namespace xformc {
namespace {

// The maximum tokens of a hypothesis for `source` tokens, the end token included (docs/search.md). The product is
// computed in float32, as in an engine.
int64_t length_limit(const SearchOptions& options, size_t source) {
  const float scaled = static_cast<float>(options.max_length_factor) * static_cast<float>(source);
  return std::max<int64_t>(1, static_cast<int64_t>(scaled) + options.max_length_offset);
}

class Translation : public Task {
 public:
  Translation(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log, const SearchOptions& options,
              const Batching& batching)
      : source_(manifest.input("source")), longest_(manifest.input("target").longest),
        vocabulary_(manifest.input("target").vocabulary), log_(log), options_(options),
        limit_(whole_limit(source_.longest, batching.max_batch_tokens)), truncate_(batching.truncate) {
    if (tokenizer.count("source") != 0) reads_ = tokenizer.at("source");
    if (tokenizer.count("target") != 0) writes_ = tokenizer.at("target");
  }

  Row encode(size_t line, const xformc_text* texts) const override {
    Row row;
    Ids ids = encode_line(
        line, *texts, [this](std::string_view text) { return reads_->encode(text); }, limit_, truncate_, 1, log_);
    const auto count = static_cast<int64_t>(ids.size());
    row.fields.push_back({std::move(ids), {}, count});
    return row;
  }

  int64_t size(const Row& row) const override {
    const size_t source = row.fields[0].ids.size();
    const int64_t limit = length_limit(options_, source);
    const __int128 target = longest_ ? std::min(limit, *longest_) : limit;
    return static_cast<int64_t>(std::min<__int128>(source + options_.beam_size * target, INT64_MAX));
  }

  // A row of only the end token gets an empty text.
  std::vector<Result> run(const Model& model, const Stopper& stopper, const Rows& rows) const override {
    std::vector<Result> results(rows.size(), Result{{{"", 0, {}}}, {}, {}});
    std::vector<size_t> numbers;
    Rows filled;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (writes_ && rows[i]->fields[0].ids.size() == 1) continue;
      numbers.push_back(i);
      filled.push_back(rows[i]);
    }
    if (filled.empty()) return results;
    size_t longest = 0;
    for (const Row* row : filled) longest = std::max(longest, row->fields[0].ids.size());
    const Written written(model.run(feeds(filled).feeds, stopper), static_cast<int64_t>(filled.size()), options_.n_best,
                          length_limit(options_, longest), vocabulary_);
    for (size_t i = 0; i < filled.size(); ++i) {
      results[numbers[i]].hypotheses = hypotheses(written, static_cast<int64_t>(i));
    }
    return results;
  }

 private:
  Batch feeds(const Rows& rows) const {
    Batch batch;
    stack(batch, "source", source_, 0, rows);
    batch.add("beam_size", std::vector<int64_t>{options_.beam_size}, {});
    batch.add("n_best", std::vector<int64_t>{options_.n_best}, {});
    batch.add("length_penalty", std::vector<float>{static_cast<float>(options_.length_penalty)}, {});
    batch.add("max_length_factor", std::vector<float>{static_cast<float>(options_.max_length_factor)}, {});
    batch.add("max_length_offset", std::vector<int64_t>{options_.max_length_offset}, {});
    return batch;
  }

  std::vector<Hypothesis> hypotheses(const Written& written, int64_t row) const {
    std::vector<Hypothesis> found;
    for (int64_t rank = 0; rank < written.ranks(); ++rank) {
      const float score = written.score(row, rank);
      if (score == -std::numeric_limits<float>::infinity() && !found.empty()) break;
      Ids tokens = written.tokens(row, rank);
      found.push_back({writes_ ? writes_->decode(tokens) : "", score, std::move(tokens)});
    }
    return found;
  }

  const Input& source_;
  const std::optional<int64_t> longest_;
  const int64_t vocabulary_;  // of the target
  const Log log_;
  const SearchOptions options_;
  const Limit limit_;
  const bool truncate_;
  std::shared_ptr<const Vocabulary> reads_, writes_;  // null for a search on ids
};

}  // namespace

std::unique_ptr<Task> make_translation(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log,
                                       const SearchOptions& options, const Batching& batching) {
  return std::make_unique<Translation>(manifest, tokenizer, log, options, batching);
}

}  // namespace xformc
