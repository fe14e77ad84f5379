// The task language_model: each prompt is continued by sampling, inside the model.
#include "edits.h"
#include "failure.h"
#include "task.h"
#include "texts.h"
#include "token_scores.h"
#include "token_stream.h"
#include "written.h"

namespace xformc {
namespace {

class Generation : public Task {
 public:
  Generation(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log, const SampleOptions& options,
             int64_t seed, const Batching& batching)
      : manifest_(manifest), text_(manifest.written()), vocabulary_(tokenizer.at(text_.name)), log_(log),
        options_(options), seed_(seed), limit_(prompt_limit(text_.longest, batching.max_batch_tokens)),
        truncate_(batching.truncate), token_scores_(batching.token_scores) {}

  Row encode(size_t line, const xformc_text* texts) const override {
    const auto reads = [this](std::string_view text) { return vocabulary_->encode_open(text); };
    Row row;
    Ids ids = encode_line(line, *texts, reads, limit_, truncate_, static_cast<size_t>(limit_.tokens), log_);
    if (ids.empty() && !text_.special.begin) {
      throw invalid_argument("an empty prompt, and the vocabulary has no begin token", "line " + std::to_string(line));
    }
    const auto count = static_cast<int64_t>(ids.size());
    row.fields.push_back({std::move(ids), {}, count});
    row.seed = seed_ + static_cast<int64_t>(line) - 1;
    return row;
  }

  int64_t size(const Row& row) const override { return row.fields[0].positions + options_.max_new_tokens; }

  Needed needed(const Batching& batching) const override {
    return {batching.token_scores, false, !options_.stops.empty()};
  }

  std::vector<Result> run(const Model& model, const Stopper& stopper, const Rows& rows) const override {
    std::vector<Result> results =
        options_.stops.empty() ? continued(model, stopper, rows) : stopped(model, stopper, rows);
    if (token_scores_) score(model, stopper, rows, results);
    return results;
  }

 private:
  std::vector<Result> continued(const Model& model, const Stopper& stopper, const Rows& rows) const {
    const std::vector<Output> outputs = model.run(feeds(rows).feeds, stopper);
    const Written written(outputs.data(), static_cast<int64_t>(rows.size()), 0, options_.max_new_tokens,
                          text_.vocabulary);
    std::vector<Result> results(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      Ids tokens = written.tokens(row, 0);
      results[i].hypotheses.push_back(
          {added_text(*vocabulary_, rows[i]->fields[0].ids, tokens), written.score(row, 0), std::move(tokens)});
    }
    return results;
  }

  // One prompt after the other, token by token.
  std::vector<Result> stopped(const Model& model, const Stopper& stopper, const Rows& rows) const {
    const TakePiece dropped = [](const std::string&, const Hypothesis&) {};
    std::vector<Result> results;
    for (const Row* row : rows) {
      results.push_back({{stream_tokens(model, stopper, text_, *vocabulary_, *row, options_, 1, dropped)}, {}});
    }
    return results;
  }

  Batch feeds(const Rows& rows) const {
    Batch batch;
    std::vector<int64_t> seeds;
    for (const Row* row : rows) seeds.push_back(row->seed);
    stack(batch, "prompt", text_, 0, rows, text_.special.absent());
    add_sampling(batch, options_, std::move(seeds));
    add_edits(batch, options_.edits);
    return batch;
  }

  // Scores the tokens of each continuation, after its prompt.
  void score(const Model& model, const Stopper& stopper, const Rows& rows, std::vector<Result>& results) const {
    std::vector<Ids> texts;
    for (size_t i = 0; i < rows.size(); ++i) {
      const Ids& tokens = results[i].hypotheses[0].tokens;
      texts.push_back(rows[i]->fields[0].ids);
      texts.back().insert(texts.back().end(), tokens.begin(), tokens.end());
    }
    const auto scores = token_scores(model, stopper, manifest_, rows, texts);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto before = static_cast<int64_t>(rows[i]->fields[0].ids.size());
      results[i].hypotheses[0].token_scores.assign(scores[i].begin() + before, scores[i].end());
    }
  }

  const Manifest& manifest_;
  const Input& text_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const Log log_;
  const SampleOptions options_;
  const int64_t seed_;
  const Limit limit_;
  const bool truncate_, token_scores_;
};

}  // namespace

std::unique_ptr<Task> make_generation(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log,
                                      const SampleOptions& options, int64_t seed, const Batching& batching) {
  return std::make_unique<Generation>(manifest, tokenizer, log, options, seed, batching);
}

}  // namespace xformc
