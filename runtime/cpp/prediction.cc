// The tasks tagging and classification: labels with probabilities, of each position or of the whole.
#include <algorithm>

#include "task.h"
#include "texts.h"

namespace xformc {
namespace {

constexpr int64_t FEWEST_POSITIONS = 16;  // shorter examples count as this many, which bounds the rows of a batch

class Prediction : public Task {
 public:
  Prediction(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log, const Batching& batching)
      : manifest_(manifest), tokenizer_(tokenizer), log_(log), batching_(batching) {
    for (size_t i = 0; i < manifest.inputs.size(); ++i) {
      if (manifest.inputs[i].name == manifest.positions) labelled_ = static_cast<int>(i);
    }
  }

  // Tagging has one id for each word.
  Row encode(size_t line, const xformc_text* texts) const override {
    const bool words = manifest_.task == "tagging";
    Row row;
    for (size_t i = 0; i < manifest_.inputs.size(); ++i) {
      const Input& input = manifest_.inputs[i];
      const Vocabulary& vocabulary = *tokenizer_.at(input.name);
      const auto reads = [&](std::string_view text) {
        return words ? vocabulary.encode_words(text) : vocabulary.encode(text);
      };
      const Limit limit = whole_limit(input.longest, batching_.max_batch_tokens);
      Ids ids = encode_line(line, texts[i], reads, limit, batching_.truncate, words ? 0 : 1, log_);
      const auto count = static_cast<int64_t>(ids.size());
      row.fields.push_back({std::move(ids), {}, count});
    }
    return row;
  }

  int64_t size(const Row& row) const override { return std::max(FEWEST_POSITIONS, row.longest()); }

  // A row without positions has no labels.
  std::vector<Result> run(const Model& model, const Stopper& stopper, const Rows& rows) const override {
    std::vector<Result> results(rows.size());
    std::vector<size_t> numbers;
    Rows filled;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (is_empty(*rows[i])) continue;
      numbers.push_back(i);
      filled.push_back(rows[i]);
    }
    if (filled.empty()) return results;
    Batch batch;
    for (size_t i = 0; i < manifest_.inputs.size(); ++i) {
      stack(batch, manifest_.inputs[i].name, manifest_.inputs[i], i, filled);
    }
    const std::vector<Output> outputs = model.run(batch.feeds, stopper);
    const auto labels = static_cast<int64_t>(manifest_.labels.size());
    std::vector<Size> shape = {static_cast<int64_t>(filled.size())};
    if (labelled_ >= 0) shape.emplace_back(longest(filled));
    shape.emplace_back(labels);
    std::vector<int64_t> found;
    const float* probabilities = outputs[0].floats(shape, found);
    const int64_t stride = (labelled_ >= 0 ? found[1] : 1) * labels;
    for (size_t i = 0; i < filled.size(); ++i) {
      const int64_t positions = labelled_ >= 0 ? filled[i]->fields[labelled_].positions : 1;
      const float* first = probabilities + static_cast<int64_t>(i) * stride;
      results[numbers[i]] = labelled(first, positions, labels);
    }
    return results;
  }

 private:
  bool is_empty(const Row& row) const {
    for (size_t i = 0; i < row.fields.size(); ++i) {
      const Kind kind = manifest_.inputs[i].kind;
      if ((kind == Kind::tokens || kind == Kind::vectors) && row.fields[i].positions == 0) return true;
    }
    return false;
  }

  int64_t longest(const Rows& rows) const {
    int64_t most = 0;
    for (const Row* row : rows) most = std::max(most, row->fields[labelled_].positions);
    return most;
  }

  static Result labelled(const float* probabilities, int64_t positions, int64_t labels) {
    Result result;
    result.probabilities.assign(probabilities, probabilities + positions * labels);
    for (int64_t i = 0; i < positions; ++i) {
      const float* first = probabilities + i * labels;
      result.labels.push_back(std::max_element(first, first + labels) - first);
    }
    return result;
  }

  const Manifest& manifest_;
  const Tokenizer& tokenizer_;
  const Log log_;
  const Batching batching_;
  int labelled_ = -1;  // the input whose positions are labelled, or -1 for labels of the whole
};

}  // namespace

std::unique_ptr<Task> make_prediction(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log,
                                      const Batching& batching) {
  return std::make_unique<Prediction>(manifest, tokenizer, log, batching);
}

}  // namespace xformc
