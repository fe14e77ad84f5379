// The tasks translation, transcription and sampling: a text for each example, which the model searches for or draws.
#include <algorithm>
#include <cmath>
#include <limits>

#include "alignment.h"
#include "controls.h"
#include "edits.h"
#include "numbers.h"
#include "task.h"
#include "texts.h"
#include "token_scores.h"
#include "written.h"

namespace xformc {
namespace {

// The maximum tokens of a hypothesis for `source` tokens, the end token included (docs/search.md). The product is
// computed in float32, as in an engine.
int64_t length_limit(const SearchOptions& options, int64_t source) {
  const float scaled = static_cast<float>(options.max_length_factor) * static_cast<float>(source);
  return std::max<int64_t>(1, static_cast<int64_t>(scaled) + options.max_length_offset);
}

constexpr size_t TEXT_OUTPUTS = 3;  // the tokens, lengths and scores of the written text, which are first

// Writes a text for each example, and reads the other results: those beside it, and those that depend on it.
class Writing : public Task {
 public:
  Writing(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log, const Batching& batching,
          bool every_row)
      : manifest_(manifest), reader_(manifest, tokenizer, log, batching), given_(manifest.given),
        written_(manifest.written()), beside_(manifest, tokenizer), of_text_(manifest, tokenizer, true),
        every_row_(every_row), token_scores_(batching.token_scores), aligns_(batching.alignment),
        tokenizer_(tokenizer) {
    for (size_t i = given_.size(); i-- > 0;) {
      if (given_[i].has_positions()) measured_ = static_cast<int>(i);
    }
    if (tokenizer.count(written_.name) != 0) writes_ = tokenizer.at(written_.name);
  }

  Row encode(size_t line, const xformc_text* texts) const override {
    Row row = reader_.encode(line, texts);
    row.seed = static_cast<int64_t>(line) - 1;
    if (aligns_) {
      const std::string_view source(texts->size > 0 ? texts->data : "", texts->size);
      row.words = read_words(*tokenizer_.at(given_[0].name), source, row.fields[0].positions);
    }
    return row;
  }

  int64_t size(const Row& row) const override {
    const __int128 positions = measured_ < 0 ? 1 : row.longest();
    return static_cast<int64_t>(std::min<__int128>(positions + needed(row, measured(row)), INT64_MAX));
  }

  // An empty row gets an empty text.
  std::vector<Result> run(const Model& model, const Stopper& stopper, const Rows& rows) const override {
    Result nothing{{{"", 0, {}}}, {}};
    beside_.set_nothing(nothing.values);
    of_text_.set_nothing(nothing.values);
    if (!of_text_.empty()) nothing.hypotheses[0].values = nothing.values;
    if (aligns_) nothing.hypotheses[0].links.emplace();
    std::vector<Result> results(rows.size(), nothing);
    std::vector<Result*> written_to;
    std::vector<std::vector<Value>*> values;
    Rows filled;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!every_row_ && is_empty(*rows[i])) continue;
      written_to.push_back(&results[i]);
      values.push_back(&results[i].values);
      filled.push_back(rows[i]);
    }
    if (filled.empty()) return results;
    int64_t longest = 0;
    for (const Row* row : filled) longest = std::max(longest, measured(*row));
    Batch batch = inputs(filled);
    add_options(batch, filled);
    const std::vector<Output> outputs = model.run(batch.feeds, stopper);
    const Written written(outputs.data(), static_cast<int64_t>(filled.size()), ranks(), limit(filled, longest),
                          written_.vocabulary);
    for (size_t i = 0; i < filled.size(); ++i) {
      written_to[i]->hypotheses = hypotheses(written, static_cast<int64_t>(i));
    }
    if (token_scores_) score(model, stopper, filled, written_to);
    if (aligns_) link(model, stopper, filled, written_to);
    beside_.read(outputs.data() + TEXT_OUTPUTS, filled, values);
    if (model.of_text) read_results_of_text(*model.of_text, stopper, filled, written_to);
    return results;
  }

 protected:
  // The tokens that a text of a row with so many positions needs, those of all its hypotheses.
  virtual __int128 needed(const Row& row, int64_t positions) const = 0;
  // The maximum tokens of a text, where the longest of these rows has so many positions.
  virtual int64_t limit(const Rows& rows, int64_t positions) const = 0;
  // The number of texts of each row; 0 for outputs without an axis of texts.
  virtual int64_t ranks() const = 0;
  virtual void add_options(Batch& batch, const Rows& rows) const = 0;

  const Input& written() const { return written_; }

 private:
  // The positions by which a text may be longer.
  int64_t measured(const Row& row) const { return measured_ < 0 ? 0 : row.fields[measured_].positions; }

  // Whether an input has no positions, or no input has more than an end token.
  bool is_empty(const Row& row) const {
    bool sequences = false, something = false;
    for (size_t i = 0; i < given_.size(); ++i) {
      const Input& input = given_[i];
      something |= input.kind == Kind::values;
      if (!input.has_positions()) continue;
      const int64_t positions = row.fields[i].positions;
      if (positions == 0) return true;
      const auto after = static_cast<int64_t>(input.kind == Kind::tokens ? input.special.after().size() : 0);
      sequences = true;
      something |= positions > after;
    }
    return sequences && !something;
  }

  Batch inputs(const Rows& rows) const {
    Batch batch;
    for (size_t i = 0; i < given_.size(); ++i)
      stack(batch, given_[i].name, given_[i], i, rows, given_[i].special.fill());
    return batch;
  }

  // Computes the results that depend on the text for every hypothesis, from what the decoder had read before it wrote
  // the last token. Those of the best one are also the example's.
  void read_results_of_text(const Model& model, const Stopper& stopper, const Rows& rows,
                            const std::vector<Result*>& results) const {
    Rows repeated;
    std::vector<Row> texts;
    std::vector<std::vector<Value>*> values;
    for (size_t i = 0; i < rows.size(); ++i) {
      for (Hypothesis& hypothesis : results[i]->hypotheses) {
        Ids ids = written_.special.begun();
        if (!hypothesis.tokens.empty()) ids.insert(ids.end(), hypothesis.tokens.begin(), hypothesis.tokens.end() - 1);
        const auto positions = static_cast<int64_t>(ids.size());
        texts.push_back({{{std::move(ids), {}, positions}}});
        repeated.push_back(rows[i]);
        values.push_back(&hypothesis.values);
      }
    }
    Rows read;
    for (const Row& text : texts) read.push_back(&text);
    Batch batch = inputs(repeated);
    stack(batch, written_.name, written_, 0, read, written_.special.fill());
    of_text_.read(model.run(batch.feeds, stopper).data(), repeated, values);
    for (Result* result : results) of_text_.copy(result->hypotheses[0].values, result->values);
  }

  // Scores the tokens of every hypothesis.
  void score(const Model& model, const Stopper& stopper, const Rows& rows, const std::vector<Result*>& results) const {
    Rows repeated;
    std::vector<Ids> texts;
    std::vector<Hypothesis*> found;
    for (size_t i = 0; i < rows.size(); ++i) {
      for (Hypothesis& hypothesis : results[i]->hypotheses) {
        repeated.push_back(rows[i]);
        texts.push_back(hypothesis.tokens);
        found.push_back(&hypothesis);
      }
    }
    auto scores = token_scores(model, stopper, manifest_, repeated, texts);
    for (size_t i = 0; i < found.size(); ++i) found[i]->token_scores = std::move(scores[i]);
  }

  // Aligns every hypothesis with its source.
  void link(const Model& model, const Stopper& stopper, const Rows& rows, const std::vector<Result*>& results) const {
    Rows repeated;
    std::vector<Ids> texts;
    std::vector<std::vector<Words>> words;
    for (size_t i = 0; i < rows.size(); ++i) {
      for (const Hypothesis& hypothesis : results[i]->hypotheses) {
        repeated.push_back(rows[i]);
        texts.push_back(hypothesis.tokens);
        words.push_back(written_words(*writes_, hypothesis.tokens));
      }
    }
    auto links = align(model, stopper, manifest_, repeated, texts, words);
    auto next = links.begin();
    for (Result* result : results) {
      for (Hypothesis& hypothesis : result->hypotheses) hypothesis.links = std::move(*next++);
    }
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

  const Manifest& manifest_;
  const ExampleReader reader_;
  const std::vector<Input>& given_;
  const Input& written_;
  const ValueReader beside_, of_text_;
  const bool every_row_, token_scores_, aligns_;
  const Tokenizer& tokenizer_;
  int measured_ = -1;                         // the first input with positions, or -1 if there is none
  std::shared_ptr<const Vocabulary> writes_;  // null without a tokenizer
};

class Search : public Writing {
 public:
  Search(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log, const SearchOptions& options,
         const Batching& batching, bool every_row)
      : Writing(manifest, tokenizer, log, batching, every_row), options_(options) {}

  void check_count(std::optional<size_t> items) const override {
    const size_t prefixes = options_.prefixes.size();
    if (options_.whole_texts && prefixes == 0 && items != size_t{0}) {
      throw invalid_argument("whole_texts is set, and there are no texts to score", "", "give them as prefixes");
    }
    if (prefixes < 2 || items == prefixes) return;
    if (!items) throw invalid_argument("a stream has one prefix for all of its texts");
    if (prefixes > *items) {
      throw invalid_argument("there are more prefixes than texts, which are " + grouped(static_cast<int64_t>(*items)),
                             "", "give one for each text");
    }
    throw invalid_argument("there is no prefix for this text", "line " + std::to_string(prefixes + 1),
                           "give one for each text");
  }

  // A row that is not searched for has the empty text with certainty, and no other.
  std::vector<Result> run(const Model& model, const Stopper& stopper, const Rows& rows) const override {
    std::vector<Result> results = Writing::run(model, stopper, rows);
    for (size_t i = 0; options_.whole_texts && i < rows.size(); ++i) {
      Hypothesis& best = results[i].hypotheses[0];
      const bool impossible = best.tokens.empty() && *prefix(*rows[i]) != Ids{written().special.last()};
      if (impossible) best.score = -std::numeric_limits<float>::infinity();
    }
    return results;
  }

 protected:
  __int128 needed(const Row& row, int64_t positions) const override {
    const int64_t most = limit({&row}, positions);
    const __int128 target = written().longest ? std::min(most, *written().longest) : most;
    return options_.beam_size * target;
  }

  int64_t limit(const Rows& rows, int64_t positions) const override {
    return std::max(length_limit(options_, positions), longest_prefix(rows));
  }
  int64_t ranks() const override { return options_.n_best; }

  void add_options(Batch& batch, const Rows& rows) const override {
    if (const int64_t longest = longest_prefix(rows); longest > 0) {
      std::vector<int64_t> tokens(rows.size() * static_cast<size_t>(longest), written().special.absent());
      for (size_t i = 0; i < rows.size(); ++i) {
        const Ids& ids = *prefix(*rows[i]);
        std::copy(ids.begin(), ids.end(), tokens.begin() + static_cast<int64_t>(i) * longest);
      }
      batch.add("prefix", std::move(tokens), {static_cast<int64_t>(rows.size()), longest});
    }
    batch.add("beam_size", std::vector<int64_t>{options_.beam_size}, {});
    batch.add("n_best", std::vector<int64_t>{options_.n_best}, {});
    batch.add("length_penalty", std::vector<float>{static_cast<float>(options_.length_penalty)}, {});
    batch.add("max_length_factor", std::vector<float>{static_cast<float>(options_.max_length_factor)}, {});
    batch.add("max_length_offset", std::vector<int64_t>{options_.max_length_offset}, {});
    for (size_t i = 0; i < controls().size(); ++i) {
      const std::optional<double>& value = options_.controls.at(i);
      const char* const name = controls()[i].name;
      if (value && controls()[i].is_integer) batch.add(name, std::vector<int64_t>{static_cast<int64_t>(*value)}, {});
      if (value && !controls()[i].is_integer) batch.add(name, std::vector<float>{static_cast<float>(*value)}, {});
    }
    add_edits(batch, options_.edits);
  }

 private:
  // What the text of a row begins with, or null if there are no prefixes.
  const Ids* prefix(const Row& row) const {
    if (options_.prefixes.empty()) return nullptr;
    return &options_.prefixes[options_.prefixes.size() == 1 ? 0 : static_cast<size_t>(row.seed)];
  }

  int64_t longest_prefix(const Rows& rows) const {
    size_t longest = 0;
    for (const Row* row : rows) longest = std::max(longest, options_.prefixes.empty() ? 0 : prefix(*row)->size());
    return static_cast<int64_t>(longest);
  }

  const SearchOptions options_;
};

class Sampling : public Writing {
 public:
  Sampling(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log, const SampleOptions& options,
           int64_t seed, const Batching& batching)
      : Writing(manifest, tokenizer, log, batching, false), options_(options), seed_(seed) {}

 protected:
  __int128 needed(const Row&, int64_t) const override { return options_.max_new_tokens; }
  int64_t limit(const Rows&, int64_t) const override { return options_.max_new_tokens; }
  int64_t ranks() const override { return 0; }

  void add_options(Batch& batch, const Rows& rows) const override {
    const auto count = static_cast<int64_t>(rows.size());
    std::vector<int64_t> seeds;
    for (const Row* row : rows) seeds.push_back(seed_ + row->seed);
    batch.add("prompt", std::vector<int64_t>(), {count, 0});
    add_sampling(batch, options_, std::move(seeds));
    add_edits(batch, options_.edits);
  }

 private:
  const SampleOptions options_;
  const int64_t seed_;
};

}  // namespace

std::unique_ptr<Task> make_search(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log,
                                  const SearchOptions& options, const Batching& batching, bool every_row) {
  return std::make_unique<Search>(manifest, tokenizer, log, options, batching, every_row);
}

std::unique_ptr<Task> make_sampling(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log,
                                    const SampleOptions& options, int64_t seed, const Batching& batching) {
  return std::make_unique<Sampling>(manifest, tokenizer, log, options, seed, batching);
}

}  // namespace xformc
