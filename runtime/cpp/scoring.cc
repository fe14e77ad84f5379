// The scores of texts by a language model: whole texts, or what follows prompts. An item is a prompt and a text.
#include <algorithm>

#include "task.h"
#include "texts.h"
#include "token_scores.h"

namespace xformc {
namespace {

enum Part : size_t { PROMPT, TEXT };  // the fields of a row

class Scoring : public Task {
 public:
  Scoring(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log, const Batching& batching)
      : manifest_(manifest), vocabulary_(tokenizer.at(manifest.written().name)), log_(log),
        limit_(scored_limit(manifest.written().longest, batching.max_batch_tokens)), truncate_(batching.truncate) {}

  // Both texts are tokenized together; the text has the tokens that the prompt alone has not.
  Row encode(size_t line, const xformc_text* texts) const override {
    const std::string place = "line " + std::to_string(line);
    const std::string_view prompt = valid_text(texts[PROMPT], place), text = valid_text(texts[TEXT], place);
    const Ids first = vocabulary_->encode_open(prompt);
    Ids all = vocabulary_->encode(std::string(prompt).append(text));
    const auto split = std::mismatch(first.begin(), first.end(), all.begin(), all.end()).second;
    Ids rest(split, all.end());
    all.erase(split, all.end());
    const auto count = static_cast<int64_t>(all.size() + rest.size());
    if (count > limit_.tokens) {
      if (!truncate_) throw too_long(place, count, limit_);
      warn_of_cut(place, count, limit_, log_);
      all.erase(all.begin(), all.begin() + std::min<int64_t>(count - limit_.tokens, static_cast<int64_t>(all.size())));
      if (const auto size = static_cast<int64_t>(rest.size()); size > limit_.tokens) {
        rest.erase(rest.begin() + (limit_.tokens - 1), rest.end() - 1);
      }
    }
    Row row;
    for (Ids* ids : {&all, &rest}) {
      const auto positions = static_cast<int64_t>(ids->size());
      row.fields.push_back({std::move(*ids), {}, positions});
    }
    return row;
  }

  int64_t size(const Row& row) const override {
    return std::max<int64_t>(1, row.fields[PROMPT].positions + row.fields[TEXT].positions);
  }

  std::vector<Result> run(const Model& model, const Stopper& stopper, const Rows& rows) const override {
    std::vector<Ids> texts;
    for (const Row* row : rows) {
      texts.push_back(row->fields[PROMPT].ids);
      texts.back().insert(texts.back().end(), row->fields[TEXT].ids.begin(), row->fields[TEXT].ids.end());
    }
    const auto scores = token_scores(model, stopper, manifest_, rows, texts);
    std::vector<Result> results(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const Ids &prompt = rows[i]->fields[PROMPT].ids, &text = rows[i]->fields[TEXT].ids;
      std::vector<float> own(scores[i].begin() + static_cast<int64_t>(prompt.size()), scores[i].end());
      results[i].hypotheses.push_back({added_text(*vocabulary_, prompt, text), total(own), text, {}, std::move(own)});
    }
    return results;
  }

 private:
  const Manifest& manifest_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const Log log_;
  const Limit limit_;
  const bool truncate_;
};

}  // namespace

std::unique_ptr<Task> make_scoring(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log,
                                   const Batching& batching) {
  return std::make_unique<Scoring>(manifest, tokenizer, log, batching);
}

}  // namespace xformc
