// The tasks tagging, classification and prediction: all results of an example in one forward pass.
#include <algorithm>

#include "task.h"
#include "texts.h"

namespace xformc {
namespace {

constexpr int64_t FEWEST_POSITIONS = 16;  // shorter examples count as this many, which bounds the rows of a batch

class Prediction : public Task {
 public:
  Prediction(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log, const Batching& batching)
      : manifest_(manifest), reader_(manifest, tokenizer, log, batching), values_(manifest, tokenizer) {}

  Row encode(size_t line, const xformc_text* texts) const override { return reader_.encode(line, texts); }

  int64_t size(const Row& row) const override { return std::max(FEWEST_POSITIONS, row.longest()); }

  // A row without positions has no results.
  std::vector<Result> run(const Model& model, const Stopper& stopper, const Rows& rows) const override {
    std::vector<Result> results(rows.size());
    std::vector<std::vector<Value>*> values;
    Rows filled;
    for (size_t i = 0; i < rows.size(); ++i) {
      values_.set_nothing(results[i].values);
      if (is_empty(*rows[i])) continue;
      values.push_back(&results[i].values);
      filled.push_back(rows[i]);
    }
    if (filled.empty()) return results;
    Batch batch;
    for (size_t i = 0; i < manifest_.inputs.size(); ++i) {
      stack(batch, manifest_.inputs[i].name, manifest_.inputs[i], i, filled, manifest_.inputs[i].special.fill());
    }
    const std::vector<Output> outputs = model.run(batch.feeds, stopper);
    values_.read(outputs.data(), filled, values);
    return results;
  }

 private:
  bool is_empty(const Row& row) const {
    for (size_t i = 0; i < row.fields.size(); ++i) {
      if (manifest_.inputs[i].has_positions() && row.fields[i].positions == 0) return true;
    }
    return false;
  }

  const Manifest& manifest_;
  const ExampleReader reader_;
  const ValueReader values_;
};

}  // namespace

std::unique_ptr<Task> make_prediction(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log,
                                      const Batching& batching) {
  return std::make_unique<Prediction>(manifest, tokenizer, log, batching);
}

}  // namespace xformc
