// The options of calls, and their checks against an engine.
#pragma once

#include <cstdint>
#include <optional>

#include "include/xformc.h"
#include "manifest.h"
#include "tokenizer.h"

namespace xformc {

constexpr int64_t MAX_THREADS = 1024;
constexpr int64_t MAX_BATCH_TOKENS = 16'384;    // default capacity of a batch for tasks that generate text
constexpr int64_t MAX_BATCH_POSITIONS = 2'048;  // and for predictions
constexpr int64_t WINDOW = 1'024;               // default number of items to read ahead for each worker

// How a call forms and runs batches, complete and checked.
struct Batching {
  int64_t workers, max_batch_tokens, window;
  bool truncate;
  bool token_scores = false;  // also score the tokens of written texts
  bool alignment = false;     // also align them with their sources
  int64_t tokens_at_once = 1;
};

// The caller's options as this library knows them: fields that the caller's struct does not have yet are not set.
// Throws Failure for a size that no version of the struct has had.
xformc_load_options read_options(const xformc_load_options* given);
xformc_run_options read_options(const xformc_run_options* given);
xformc_search_options read_options(const xformc_search_options* given);
xformc_sample_options read_options(const xformc_sample_options* given);

// The value, or `unset` if it is not set. Throws Failure unless it is from `low` to `high`.
int64_t checked(const char* name, int64_t given, int64_t unset, int64_t low, int64_t high);
double checked(const char* name, double given, double unset, double low, double high);

// These complete options with the engine's defaults, and throw Failure for a value out of range. The tokenizer knows the
// pieces of tokens.
Batching resolve(const xformc_run_options& given, int64_t workers, int64_t max_batch_tokens);
SearchOptions resolve(const xformc_search_options& given, const Manifest& manifest, const Tokenizer& tokenizer);
SampleOptions resolve(const xformc_sample_options& given, const Manifest& manifest, const Tokenizer& tokenizer);
int64_t resolve_seed(const xformc_sample_options& given);
int64_t resolve_threads(int64_t given);
int64_t resolve_workers(int64_t given);

}  // namespace xformc
