/* Translates its arguments: translate ENGINE TEXT... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xformc.h>

static int report(xformc_error* error) {
  const char *place = xformc_error_place(error), *hint = xformc_error_hint(error);
  fprintf(stderr, "error: %s%s%s\n", place, *place == '\0' ? "" : ": ", xformc_error_message(error));
  if (*hint != '\0') fprintf(stderr, "hint: %s\n", hint);
  xformc_error_free(error);
  return 2;
}

static int translate(const xformc_engine* engine, char** words, size_t count) {
  xformc_search_options search;
  xformc_search_options_init(&search, sizeof search);
  search.beam_size = 4;
  xformc_text* texts = malloc((count + 1) * sizeof *texts);
  if (texts == NULL) return 2;
  for (size_t i = 0; i < count; ++i) texts[i] = (xformc_text){words[i], strlen(words[i])};

  xformc_results* results = NULL;
  xformc_error* error = NULL;
  const xformc_status status = xformc_translate(engine, texts, count, &search, NULL, &results, &error);
  free(texts);
  if (status != XFORMC_OK) return report(error);
  for (size_t i = 0; i < count; ++i) {
    xformc_hypothesis best;
    if (xformc_results_hypothesis(results, i, 0, &best)) printf("%s\t%.4f\n", best.text.data, best.score);
  }
  xformc_results_free(results);
  return 0;
}

int main(int count, char** words) {
  if (count < 2) return fprintf(stderr, "usage: %s ENGINE TEXT...\n", words[0]), 2;
  xformc_engine* engine = NULL;
  xformc_error* error = NULL;
  if (xformc_load(words[1], NULL, &engine, &error) != XFORMC_OK) return report(error);
  const int code = translate(engine, words + 2, (size_t)count - 2);
  xformc_engine_free(engine);
  return code;
}
