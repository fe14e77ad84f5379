// What an engine does with its items, by task: encodes them as rows, and runs rows of similar size as batches.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "include/xformc.h"
#include "options.h"
#include "rows.h"
#include "session.h"
#include "values.h"

namespace xformc {

// The results of one item: the hypotheses of its written text, and a value for each result of the engine; of text, and
// of a language model's continuations, values are empty.
struct Result {
  std::vector<Hypothesis> hypotheses;
  std::vector<Value> values;
};

// Gets warnings and what a developer asks for.
struct Log {
  xformc_log function = nullptr;
  void* data = nullptr;

  void warning(const std::string& message) const {
    if (function != nullptr) function(data, XFORMC_LOG_WARNING, message.c_str());
  }
};

// A task of an engine with the options of one call. Several threads may use it at once.
class Task {
 public:
  virtual ~Task() = default;

  // The row of the texts of one item, on this line, counted from 1. Throws Failure for an item that does not fit.
  virtual Row encode(size_t line, const xformc_text* texts) const = 0;

  // The models that its runs need beside the engine's own.
  virtual Needed needed(const Batching& batching) const { return {batching.token_scores, batching.alignment, false}; }

  // The maximum number of tokens that a row needs.
  virtual int64_t size(const Row& row) const = 0;

  // Throws Failure if the options of the call do not fit its number of items, or one of any number (streams).
  virtual void check_count(std::optional<size_t>) const {}

  // The results of some rows, in order.
  virtual std::vector<Result> run(const Model& model, const Stopper& stopper, const Rows& rows) const = 0;
};

// With `every_row`, rows with a text of only the end token are searched for, too.
std::unique_ptr<Task> make_search(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log,
                                  const SearchOptions& options, const Batching& batching, bool every_row);
std::unique_ptr<Task> make_sampling(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log,
                                    const SampleOptions& options, int64_t seed, const Batching& batching);
std::unique_ptr<Task> make_generation(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log,
                                      const SampleOptions& options, int64_t seed, const Batching& batching);
std::unique_ptr<Task> make_scoring(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log,
                                   const Batching& batching);
std::unique_ptr<Task> make_aligning(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log,
                                    const Batching& batching);
std::unique_ptr<Task> make_prediction(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log,
                                      const Batching& batching);

}  // namespace xformc
