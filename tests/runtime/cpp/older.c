/* A program as it was compiled with the header of a version whose option structs had fewer fields:
 * older TRANSLATION_ENGINE LANGUAGE_MODEL. What the library must not write lies behind each struct. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct older_text {
  const char* data;
  size_t size;
} older_text;

typedef struct older_run_options {
  size_t size;
  int64_t workers, max_batch_tokens, window;
  bool truncate;
  void* cancel;
  bool token_scores;
} older_run_options;

typedef struct older_search_options {
  size_t size;
  int64_t beam_size, n_best;
  double length_penalty, max_length_factor;
  int64_t max_length_offset, min_length;
  const older_text* prefixes;
  size_t prefix_count;
  bool whole_texts;
  const char *length_penalty_kind, *stop_rule;
  double patience;
  const char* preset;
} older_search_options;

typedef struct older_sample_options {
  size_t size;
  int64_t seed;
  double temperature;
  int64_t top_k;
  double top_p;
  int64_t max_new_tokens;
} older_sample_options;

int xformc_load(const char* folder, const void* options, void** engine, void** error);
void xformc_engine_free(void* engine);
void xformc_run_options_init(older_run_options* options, size_t size);
void xformc_search_options_init(older_search_options* options, size_t size);
void xformc_sample_options_init(older_sample_options* options, size_t size);
bool xformc_engine_search_options(const void* engine, older_search_options* options);
bool xformc_engine_sample_options(const void* engine, older_sample_options* options);
int xformc_translate(const void* engine, const older_text* texts, size_t count, const older_search_options* search,
                     const older_run_options* run, void** results, void** error);
int xformc_generate(const void* engine, const older_text* prompts, size_t count, const older_sample_options* sampling,
                    const older_run_options* run, void** results, void** error);
size_t xformc_results_hypothesis_count(const void* results, size_t index);
void xformc_results_free(void* results);
const char* xformc_error_message(const void* error);

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      fprintf(stderr, "older.c:%d: %s, %s\n", __LINE__, #condition, said); \
      return 1;                                                            \
    }                                                                      \
  } while (false)

static bool untouched(const unsigned char* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (bytes[i] != 0xaa) return false;
  }
  return true;
}

int main(int count, char** words) {
  const char* said = "";
  void *engine = NULL, *model = NULL, *results = NULL, *error = NULL;
  struct {
    older_search_options options;
    unsigned char behind[256];
  } search;
  struct {
    older_sample_options options;
    unsigned char behind[256];
  } sampling;
  struct {
    older_run_options options;
    unsigned char behind[256];
  } run;
  memset(&search, 0xaa, sizeof search);
  memset(&sampling, 0xaa, sizeof sampling);
  memset(&run, 0xaa, sizeof run);
  CHECK(count == 3 && xformc_load(words[1], NULL, &engine, NULL) == 0 &&
        xformc_load(words[2], NULL, &model, NULL) == 0);

  xformc_run_options_init(&run.options, sizeof run.options);
  xformc_search_options_init(&search.options, sizeof search.options);
  search.options.preset = "marian";
  CHECK(xformc_engine_search_options(engine, &search.options) && strcmp(search.options.stop_rule, "shrink") == 0);
  xformc_search_options_init(&search.options, sizeof search.options);
  CHECK(xformc_engine_search_options(engine, &search.options) && search.options.beam_size > 1);
  search.options.n_best = 2;
  const older_text text = {"two dogs", 8};
  int status = xformc_translate(engine, &text, 1, &search.options, &run.options, &results, &error);
  said = xformc_error_message(error);
  CHECK(status == 0 && xformc_results_hypothesis_count(results, 0) == 2);
  xformc_results_free(results);

  xformc_sample_options_init(&sampling.options, sizeof sampling.options);
  CHECK(xformc_engine_sample_options(model, &sampling.options) && sampling.options.max_new_tokens > 0);
  status = xformc_generate(model, &text, 1, &sampling.options, &run.options, &results, &error);
  said = xformc_error_message(error);
  CHECK(status == 0 && xformc_results_hypothesis_count(results, 0) == 1);
  xformc_results_free(results);
  CHECK(untouched(search.behind, sizeof search.behind) && untouched(sampling.behind, sizeof sampling.behind) &&
        untouched(run.behind, sizeof run.behind));
  xformc_engine_free(engine);
  xformc_engine_free(model);
  return 0;
}
