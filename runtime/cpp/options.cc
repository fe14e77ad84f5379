#include "options.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <thread>

#include "controls.h"
#include "edits.h"
#include "failure.h"
#include "numbers.h"
#include "token_stream.h"

namespace xformc {
namespace {

constexpr int64_t MAX_SEED = int64_t{1} << 62;

// The sizes of the structs of older headers: each ended before the field that the next version added first.
constexpr size_t OLDER_RUN = offsetof(xformc_run_options, tokens_at_once);
constexpr size_t OLDER_SEARCH = offsetof(xformc_search_options, suppress_tokens);
constexpr size_t UNGROUPED_SEARCH = offsetof(xformc_search_options, beam_groups);
constexpr size_t UNCOVERED_SEARCH = offsetof(xformc_search_options, coverage_penalty);
constexpr size_t UNBIASED_SEARCH = offsetof(xformc_search_options, prefix_bias);
constexpr size_t OLDER_SAMPLE = offsetof(xformc_sample_options, suppress_tokens);
constexpr size_t UNSTOPPED_SAMPLE = offsetof(xformc_sample_options, stop);

template <typename Options>
Options completed(const Options* given, void (*init)(Options*, size_t), const char* name,
                  std::initializer_list<size_t> older = {}) {
  Options options;
  init(&options, sizeof options);
  if (given == nullptr) return options;
  if (given->size != sizeof options && std::find(older.begin(), older.end(), given->size) == older.end()) {
    throw invalid_argument(std::string(name) + " has the size " + std::to_string(given->size) +
                               "; this library knows " + std::to_string(sizeof options),
                           "", std::string("call ") + name + "_init first; a newer header needs a newer library");
  }
  std::memcpy(static_cast<void*>(&options), given, given->size);
  options.size = sizeof options;
  return options;
}

// The caller's value of a control as the model's input has it, or else `unset`.
double resolved(const Control& control, const xformc_search_options& given, double unset) {
  if (control.count != nullptr) {
    return static_cast<double>(checked(control.name, given.*control.count, static_cast<int64_t>(unset),
                                       static_cast<int64_t>(control.low), static_cast<int64_t>(control.high)));
  }
  if (control.measure != nullptr)
    return checked(control.name, given.*control.measure, unset, control.low, control.high);
  const char* const word = given.*control.word;
  std::vector<std::string> words;
  for (const auto& [known, number] : control.words) {
    if (word != nullptr && std::string(word) == known) return number;
    words.emplace_back(known);
  }
  if (word == nullptr) return unset;
  throw invalid_argument(std::string(control.name) + " must be " + joined(words, " or ") + ", not '" + word + "'");
}

// A number of 1 or more.
int64_t counted(const char* name, int64_t given, int64_t unset) {
  if (given == XFORMC_DEFAULT) return unset;
  if (given >= 1) return given;
  throw invalid_argument(std::string(name) + " must be 1 or more, not " + std::to_string(given));
}

}  // namespace

int64_t checked(const char* name, int64_t given, int64_t unset, int64_t low, int64_t high) {
  const int64_t value = given == XFORMC_DEFAULT ? unset : given;
  if (given == XFORMC_DEFAULT || (low <= value && value <= high)) return value;
  throw invalid_argument(std::string(name) + " must be an integer from " + std::to_string(low) + " to " +
                         std::to_string(high) + ", not " + std::to_string(value));
}

double checked(const char* name, double given, double unset, double low, double high) {
  if (std::isnan(given)) return unset;
  if (low <= given && given <= high) return given;
  throw invalid_argument(std::string(name) + " must be a number from " + rough(low) + " to " + rough(high) + ", not " +
                         shortest(given));
}

xformc_load_options read_options(const xformc_load_options* given) {
  return completed(given, xformc_load_options_init, "xformc_load_options");
}

xformc_run_options read_options(const xformc_run_options* given) {
  return completed(given, xformc_run_options_init, "xformc_run_options", {OLDER_RUN});
}

xformc_search_options read_options(const xformc_search_options* given) {
  return completed(given, xformc_search_options_init, "xformc_search_options",
                   {OLDER_SEARCH, UNGROUPED_SEARCH, UNCOVERED_SEARCH, UNBIASED_SEARCH});
}

xformc_sample_options read_options(const xformc_sample_options* given) {
  return completed(given, xformc_sample_options_init, "xformc_sample_options", {OLDER_SAMPLE, UNSTOPPED_SAMPLE});
}

Batching resolve(const xformc_run_options& given, int64_t workers, int64_t max_batch_tokens) {
  const int64_t chosen = given.workers == XFORMC_DEFAULT ? workers : resolve_workers(given.workers);
  return {chosen,
          counted("max_batch_tokens", given.max_batch_tokens, max_batch_tokens),
          counted("window", given.window, WINDOW * chosen),
          given.truncate,
          given.token_scores,
          given.alignment,
          checked("tokens_at_once", given.tokens_at_once, 1, 1, MOST_AT_ONCE)};
}

SearchOptions resolve(const xformc_search_options& chosen, const Manifest& manifest, const Tokenizer& tokenizer) {
  const xformc_search_options given = with_preset(chosen);
  const SearchOptions& unset = manifest.search;
  const int64_t choices = manifest.written().special.choices();
  const int64_t widest = std::max<int64_t>(1, manifest.written().vocabulary / choices);
  SearchOptions options;
  options.beam_size = checked("beam_size", given.beam_size, unset.beam_size, 1, widest);
  options.n_best = checked("n_best", given.n_best, std::min(unset.n_best, options.beam_size), 1, widest);
  if (options.n_best > options.beam_size) {
    const std::string n_best = std::to_string(options.n_best);
    throw invalid_argument(
        "n_best must be at most beam_size, which is " + std::to_string(options.beam_size) + ", not " + n_best, "",
        "set beam_size to " + n_best + " or more");
  }
  options.max_length_factor =
      checked("max_length_factor", given.max_length_factor, unset.max_length_factor, 0, MAX_FACTOR);
  options.max_length_offset =
      checked("max_length_offset", given.max_length_offset, unset.max_length_offset, 0, MAX_OFFSET);
  for (size_t i = 0; i < controls().size(); ++i) {
    const Control& control = controls()[i];
    const std::optional<double>& there = unset.controls.at(i);
    const bool is_coverage = control.name == std::string_view(COVERAGE_PENALTY);
    double value = resolved(control, given, there.value_or(control.absent));
    const bool is_bias = control.name == std::string_view(PREFIX_BIAS);
    if (given.whole_texts && (is_coverage || is_bias)) value = 0;  // texts are scored as they are likely
    if (value != control.absent && !there) {
      throw invalid_argument(
          "the search of " + manifest.name + " has no " + control.name, "",
          is_coverage ? "set decode: coverage in its spec and build it again, not for a GPU" : BUILD_FOR_CPUS);
    }
    if (control.name == std::string_view(BEAM_GROUPS) && options.beam_size % static_cast<int64_t>(value) != 0) {
      throw invalid_argument("beam_groups must divide beam_size, which is " + std::to_string(options.beam_size) +
                                 ", not " + std::to_string(static_cast<int64_t>(value)),
                             "", "each group has beam_size / beam_groups hypotheses");
    }
    options.controls.push_back(there ? std::optional(value) : std::nullopt);
  }
  options.length_penalty =
      checked("length_penalty", given.length_penalty, unset.length_penalty, -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY);
  options.edits = resolve_edits(given_edits(given), unset.edits, manifest, tokenizer, choices * options.beam_size);
  return options;
}

SampleOptions resolve(const xformc_sample_options& given, const Manifest& manifest, const Tokenizer& tokenizer) {
  const SampleOptions& unset = manifest.sampling;
  SampleOptions options;
  options.temperature = checked("temperature", given.temperature, unset.temperature, 0, MAX_TEMPERATURE);
  options.top_k = checked("top_k", given.top_k, unset.top_k, 0, MAX_TOP_K);
  options.top_p = checked("top_p", given.top_p, unset.top_p, 0, 1);
  options.max_new_tokens = checked("max_new_tokens", given.max_new_tokens, unset.max_new_tokens, 1, MAX_NEW_TOKENS);
  options.edits = resolve_edits(given_edits(given), unset.edits, manifest, tokenizer, 1);
  options.stops = Stops(given.stop, given.stop_count);
  return options;
}

int64_t resolve_seed(const xformc_sample_options& given) {
  if (given.seed >= 0 && given.seed <= MAX_SEED) return given.seed;
  throw invalid_argument("seed must be an integer from 0 to " + std::to_string(MAX_SEED) + ", not " +
                         std::to_string(given.seed));
}

int64_t resolve_threads(int64_t given) {
  if (given == XFORMC_DEFAULT) {
#if defined(__linux__)
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
#endif
    return std::max<int64_t>(1, std::thread::hardware_concurrency());
  }
  return checked("threads", given, 1, 1, MAX_THREADS);
}

int64_t resolve_workers(int64_t given) {
  const int64_t workers = counted("workers", given, 1);
  if (workers <= MAX_THREADS) return workers;
  throw invalid_argument("workers must be at most " + std::to_string(MAX_THREADS) + ", not " + std::to_string(workers));
}

}  // namespace xformc
