// The task language_model: each prompt is continued by sampling, inside the model.
#include "failure.h"
#include "task.h"
#include "texts.h"
#include "written.h"

namespace xformc {
namespace {

class Generation : public Task {
 public:
  Generation(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log, const SampleOptions& options,
             int64_t seed, const Batching& batching)
      : text_(manifest.written()), vocabulary_(tokenizer.at(text_.name)), log_(log), options_(options), seed_(seed),
        limit_(prompt_limit(text_.longest, batching.max_batch_tokens)), truncate_(batching.truncate) {}

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

  std::vector<Result> run(const Model& model, const Stopper& stopper, const Rows& rows) const override {
    const std::vector<Output> outputs = model.run(feeds(rows).feeds, stopper);
    const Written written(outputs.data(), static_cast<int64_t>(rows.size()), 0, options_.max_new_tokens,
                          text_.vocabulary);
    std::vector<Result> results(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      Ids tokens = written.tokens(row, 0);
      results[i].hypotheses.push_back(
          {added(rows[i]->fields[0].ids, tokens), written.score(row, 0), std::move(tokens)});
    }
    return results;
  }

 private:
  Batch feeds(const Rows& rows) const {
    Batch batch;
    std::vector<int64_t> seeds;
    for (const Row* row : rows) seeds.push_back(row->seed);
    stack(batch, "prompt", text_, 0, rows, text_.special.absent());
    add_sampling(batch, options_, std::move(seeds));
    return batch;
  }

  // The text that the tokens add to the prompt.
  std::string added(const Ids& prompt, const Ids& tokens) const {
    Ids all = prompt;
    all.insert(all.end(), tokens.begin(), tokens.end());
    const std::string before = vocabulary_->decode(prompt), whole = vocabulary_->decode(all);
    if (whole.compare(0, before.size(), before) == 0) return whole.substr(before.size());
    return vocabulary_->decode(tokens);
  }

  const Input& text_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const Log log_;
  const SampleOptions options_;
  const int64_t seed_;
  const Limit limit_;
  const bool truncate_;
};

}  // namespace

std::unique_ptr<Task> make_generation(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log,
                                      const SampleOptions& options, int64_t seed, const Batching& batching) {
  return std::make_unique<Generation>(manifest, tokenizer, log, options, seed, batching);
}

}  // namespace xformc
