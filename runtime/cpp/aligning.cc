// Alignments of given pairs of texts, without a search. An item is a source and its translation.
#include <algorithm>

#include "alignment.h"
#include "task.h"
#include "texts.h"

namespace xformc {
namespace {

enum Part : size_t { SOURCE, TARGET };  // the fields of a row

class Aligning : public Task {
 public:
  Aligning(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log, const Batching& batching)
      : manifest_(manifest), inputs_{&manifest.given[0], &manifest.written()},
        vocabularies_{tokenizer.at(inputs_[SOURCE]->name), tokenizer.at(inputs_[TARGET]->name)}, log_(log),
        batching_(batching) {}

  Row encode(size_t line, const xformc_text* texts) const override {
    Row row;
    for (const Part part : {SOURCE, TARGET}) {
      const Vocabulary& vocabulary = *vocabularies_[part];
      const auto reads = [&](std::string_view text) { return vocabulary.encode(text); };
      const Limit limit = whole_limit(inputs_[part]->longest, batching_.max_batch_tokens);
      Ids ids = encode_line(line, texts[part], reads, limit, batching_.truncate, vocabulary.tail(), log_);
      const auto count = static_cast<int64_t>(ids.size());
      (part == SOURCE ? row.words : row.target_words) =
          read_words(vocabulary, valid_text(texts[part], "line " + std::to_string(line)), count);
      row.fields.push_back({std::move(ids), {}, count});
    }
    return row;
  }

  int64_t size(const Row& row) const override { return row.longest(); }

  // A translation with its links is a hypothesis, without a score.
  std::vector<Result> run(const Model& model, const Stopper& stopper, const Rows& rows) const override {
    std::vector<Ids> texts;
    std::vector<std::vector<Words>> words;
    for (const Row* row : rows) {
      texts.push_back(row->fields[TARGET].ids);
      words.push_back(row->target_words);
    }
    std::vector<Links> links = align(model, stopper, manifest_, rows, texts, words);
    std::vector<Result> results(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      Hypothesis one{vocabularies_[TARGET]->decode(texts[i]), 0, std::move(texts[i])};
      one.links = std::move(links[i]);
      results[i].hypotheses.push_back(std::move(one));
    }
    return results;
  }

 private:
  const Manifest& manifest_;
  const Input* const inputs_[2];
  const std::shared_ptr<const Vocabulary> vocabularies_[2];
  const Log log_;
  const Batching batching_;
};

}  // namespace

std::unique_ptr<Task> make_aligning(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log,
                                    const Batching& batching) {
  return std::make_unique<Aligning>(manifest, tokenizer, log, batching);
}

}  // namespace xformc
