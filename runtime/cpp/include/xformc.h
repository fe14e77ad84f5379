/* xformc.h: runs xformc's engines from C, text in and text out. See docs/cpp.md.
 *
 * Text is UTF-8 and need not end in NUL. Functions that can fail return a status; with a status other than XFORMC_OK
 * they write nothing but `*error`, which may be asked for by a pointer or left out with NULL. The caller frees what it
 * gets by `**`. What only reads an engine, results or an error finds nothing in NULL. Every function may be called from
 * any thread; an engine is shared by any number of threads. */
#ifndef XFORMC_H
#define XFORMC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(XFORMC_BUILD) && (defined(__GNUC__) || defined(__clang__))
#define XFORMC_API __attribute__((visibility("default")))
#else
#define XFORMC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Errors ---------------------------------------------------------------------------------------------------- */

typedef enum xformc_status {
  XFORMC_OK = 0,
  XFORMC_INVALID_ARGUMENT = 1, /* an option, a text or an array is invalid, or a pointer is NULL */
  XFORMC_INVALID_ENGINE = 2,   /* the folder is no engine, is damaged, or needs what is missing here */
  XFORMC_RUN_FAILED = 3,       /* the model failed on this input */
  XFORMC_CANCELLED = 4,        /* an xformc_cancel or a callback ended the call */
  XFORMC_OUT_OF_MEMORY = 5,
  XFORMC_INTERNAL_ERROR = 6 /* a defect of xformc: please report it */
} xformc_status;

/* What is wrong, where, and how to fix it. */
typedef struct xformc_error xformc_error;

XFORMC_API xformc_status xformc_error_status(const xformc_error* error);
XFORMC_API const char* xformc_error_message(const xformc_error* error);
XFORMC_API const char* xformc_error_place(const xformc_error* error); /* a file or "line N" of the texts; "" for none */
XFORMC_API const char* xformc_error_hint(const xformc_error* error);  /* "" for none */
XFORMC_API void xformc_error_free(xformc_error* error);

/* The version of the library, such as "0.1.0". */
XFORMC_API const char* xformc_version(void);

/* ---- Loading --------------------------------------------------------------------------------------------------- */

typedef enum xformc_log_level { XFORMC_LOG_DEBUG = 0, XFORMC_LOG_WARNING = 1 } xformc_log_level;

/* Gets log messages, from any thread; it must not call the engine. Without one, messages are dropped. */
typedef void (*xformc_log)(void* data, xformc_log_level level, const char* message);

/* In every option struct, `size` is the size of the struct that the caller was compiled with: call its init function
 * first, then set fields. XFORMC_DEFAULT is "not set" for integers; NAN is for numbers, NULL for texts and lists. Later
 * versions add fields at the end; those that a caller's struct lacks are not set. */
#define XFORMC_DEFAULT INT64_MIN

typedef struct xformc_load_options {
  size_t size;
  int64_t threads;         /* cores to use; XFORMC_DEFAULT: all that the process may use */
  int64_t workers;         /* batches run at the same time, which share the cores; 1 */
  bool verify_hashes;      /* compare the sha256 of every file, otherwise only their sizes; true */
  const char* onnxruntime; /* the file of ONNX Runtime's library; NULL: it is searched for (docs/cpp.md) */
  xformc_log log;          /* NULL */
  void* log_data;
} xformc_load_options;

XFORMC_API void xformc_load_options_init(xformc_load_options* options, size_t size);

/* A loaded engine. It keeps no state between calls. */
typedef struct xformc_engine xformc_engine;

/* Loads the engine in a folder; `options` may be NULL. */
XFORMC_API xformc_status xformc_load(const char* folder, const xformc_load_options* options, xformc_engine** engine,
                                     xformc_error** error);

/* Frees an engine, when no call is running. */
XFORMC_API void xformc_engine_free(xformc_engine* engine);

typedef struct xformc_input {
  const char* name;
  const char* kind;   /* "tokens", "vectors", "values" or "edges" */
  int64_t vocabulary; /* number of token ids; 0 unless the kind is tokens */
  int64_t longest;    /* maximum positions; 0: no limit */
  bool has_tokenizer;
} xformc_input;

XFORMC_API const char* xformc_engine_name(const xformc_engine* engine);
XFORMC_API const char* xformc_engine_task(const xformc_engine* engine); /* "translation", "language_model", ... */
XFORMC_API const char* xformc_engine_target(const xformc_engine* engine);
XFORMC_API const char* xformc_engine_precision(const xformc_engine* engine);
XFORMC_API const char* xformc_engine_onnxruntime(const xformc_engine* engine); /* the version of ONNX Runtime */
XFORMC_API size_t xformc_engine_input_count(const xformc_engine* engine);
XFORMC_API bool xformc_engine_input(const xformc_engine* engine, size_t index, xformc_input* input);
/* The labels of the engine's first result that is labels, by id. */
XFORMC_API size_t xformc_engine_label_count(const xformc_engine* engine);
XFORMC_API const char* xformc_engine_label(const xformc_engine* engine, size_t index); /* NULL out of range */

/* The inputs that a call gives: all but the text that the engine writes, in order. */
XFORMC_API size_t xformc_engine_given_input_count(const xformc_engine* engine);
XFORMC_API bool xformc_engine_given_input(const xformc_engine* engine, size_t index, xformc_input* input);

/* The samples in a second of a given input that is a sound, whose text is the path of a .wav file; 0 for others. */
XFORMC_API int64_t xformc_engine_given_input_rate(const xformc_engine* engine, size_t index);

/* A result that the engine gives for an example. Set `size` to sizeof(xformc_result): later versions add fields. */
typedef struct xformc_result {
  size_t size;
  const char* name;
  const char* kind;      /* "text", "ctc", "labels", "numbers" or "vectors" */
  const char* positions; /* the input whose positions each have a result; NULL: the whole example has one */
  size_t label_count;    /* labels: the number of their names */
  bool several;          /* labels: any number of them may hold at once, otherwise one */
  bool has_tokenizer;    /* ctc: its hypotheses have texts, otherwise tokens only */
} xformc_result;

XFORMC_API size_t xformc_engine_result_count(const xformc_engine* engine);
/* False, and nothing is written, out of range or for a size that the library does not know. */
XFORMC_API bool xformc_engine_result(const xformc_engine* engine, size_t index, xformc_result* result);
/* The name of a label of result `index`; NULL out of range. */
XFORMC_API const char* xformc_engine_result_label(const xformc_engine* engine, size_t index, size_t label);

/* ---- Running --------------------------------------------------------------------------------------------------- */

typedef struct xformc_text {
  const char* data;
  size_t size;
} xformc_text;

/* Ends calls early, from any thread. Any number of calls may share one. */
typedef struct xformc_cancel xformc_cancel;

XFORMC_API xformc_cancel* xformc_cancel_new(void);         /* NULL if memory is short */
XFORMC_API void xformc_cancel_now(xformc_cancel* cancel);  /* running and later calls end with XFORMC_CANCELLED */
XFORMC_API void xformc_cancel_free(xformc_cancel* cancel); /* when no call uses it */

/* How a call forms and runs batches, which does not change texts and their scores, and what it also computes. */
typedef struct xformc_run_options {
  size_t size;
  int64_t workers;          /* batches run at the same time; XFORMC_DEFAULT: as the engine was loaded */
  int64_t max_batch_tokens; /* capacity of a batch; XFORMC_DEFAULT: 16,384, or 2,048 positions for predictions */
  int64_t window;           /* streams: texts to read ahead; XFORMC_DEFAULT: 1,024 for each worker */
  bool truncate;            /* cut texts that are too long, with a warning; otherwise they are errors */
  xformc_cancel* cancel;    /* may be NULL */
  bool token_scores;        /* also score each token of the texts written: xformc_results_token_scores */
  int64_t tokens_at_once;   /* streams of tokens: those that one call of the model samples; XFORMC_DEFAULT: 1 */
  bool alignment;           /* also link the words of translations to those of their sources: xformc_results_links */
} xformc_run_options;

XFORMC_API void xformc_run_options_init(xformc_run_options* options, size_t size);

/* A token of the vocabulary of the text that an engine writes: by its id or, if `piece.data` is not NULL, by its piece,
 * such as "<unk>". U+2581 in a piece is a space. */
typedef struct xformc_token {
  int64_t id;
  xformc_text piece;
} xformc_token;

/* Options of the search; what is not set is the engine's default. */
typedef struct xformc_search_options {
  size_t size;
  int64_t beam_size;         /* hypotheses kept for each sentence; 1 is greedy search */
  int64_t n_best;            /* hypotheses returned for each sentence, at most beam_size */
  double length_penalty;     /* alpha in log probability / ((5 + length) / 6)^alpha, or of another kind */
  double max_length_factor;  /* at most floor(max_length_factor * source tokens) + max_length_offset tokens, */
  int64_t max_length_offset; /* end tokens counted on both sides */
  int64_t min_length; /* a text does not end before it has so many tokens, end token included; the maximum wins */
  /* What texts begin with, such as a language tag: one for each text of the call, or one for all of them, as for streams.
   * It is a part of the hypothesis and of its score. NULL: nothing. Read before the call returns. */
  const xformc_text* prefixes;
  size_t prefix_count;
  /* The prefixes are whole texts: the result is their score, as the search scores texts, without coverage penalty. */
  bool whole_texts;
  /* Words of docs/search.md; NULL: the engine's. Read before the call returns. */
  const char* length_penalty_kind; /* what is raised to length_penalty: gnmt or average */
  const char* stop_rule;           /* when the search of a text is done: first, best, complete or shrink */
  double patience;                 /* the rule first waits for patience * beam_size hypotheses */
  const char* preset;              /* replaces the engine's length penalty and stop rule: paper, huggingface, ... */
  /* Edits of the scores of tokens (docs/search.md). */
  const xformc_token* suppress_tokens; /* tokens that are never written. Read before the call returns. */
  size_t suppress_count;               /* how many; with 0 and suppress_tokens that is not NULL, none */
  int64_t no_repeat_ngram_size;        /* no sequence of so many tokens occurs twice in a text; 0: any may */
  double repetition_penalty;           /* above 1: makes tokens that the text already has less likely */
  double presence_penalty;             /* is subtracted from the score of each token that the text already has */
  double frequency_penalty;            /* is subtracted once for each time that the text already has the token */
  /* Groups of diverse beams (docs/search.md): the beam is divided into beam_groups, which search one after the other. */
  int64_t beam_groups;
  double diversity_penalty; /* is subtracted for each hypothesis of earlier groups that goes on with the token */
  /* The weight of the coverage of the source in the score of a text (docs/search.md); 0: none. Engines have it if their
   * spec asks for it. */
  double coverage_penalty;
  /* Above 0, the prefixes are not forced: the next token of one has this share of the probability (docs/search.md). */
  double prefix_bias;
} xformc_search_options;

XFORMC_API void xformc_search_options_init(xformc_search_options* options, size_t size);

/* Writes the engine's defaults, or those of the preset that the options name, to options that were initialized; false,
 * and nothing, unless it translates or transcribes. `suppress_tokens` is valid as long as the engine. */
XFORMC_API bool xformc_engine_search_options(const xformc_engine* engine, xformc_search_options* options);

/* Options of sampling; what is not set is the engine's default. */
typedef struct xformc_sample_options {
  size_t size;
  int64_t seed;           /* the random seed of the first prompt; the next has seed + 1, and so on; 0 */
  double temperature;     /* divides the logits; 0 always takes the most likely token */
  int64_t top_k;          /* sample from the k most likely tokens; 0: no limit */
  double top_p;           /* sample from the fewest most likely tokens whose probabilities sum to top_p; 1: no limit */
  int64_t max_new_tokens; /* maximum tokens of a continuation, the end token included */
  /* Edits of the scores of tokens, as in xformc_search_options. */
  const xformc_token* suppress_tokens;
  size_t suppress_count;
  int64_t no_repeat_ngram_size;
  double repetition_penalty;
  double presence_penalty;
  double frequency_penalty;
  /* Stop strings of a language model: a continuation ends before the first of them that it has (docs/search.md). Its
   * tokens end with the one that completes it. At most 64 of 1 to 1,000 characters. Read before the call returns. */
  const xformc_text* stop;
  size_t stop_count;
} xformc_sample_options;

XFORMC_API void xformc_sample_options_init(xformc_sample_options* options, size_t size);

/* Writes the engine's defaults to options that were initialized; false, and nothing, unless it is a language model. */
XFORMC_API bool xformc_engine_sample_options(const xformc_engine* engine, xformc_sample_options* options);

/* The results of a call, one for each text or row, in order. */
typedef struct xformc_results xformc_results;

/* Pointers in the structs below are valid as long as the results. */
typedef struct xformc_hypothesis {
  xformc_text text;      /* also ends in NUL; empty for a search on ids */
  float score;           /* higher is better */
  const int64_t* tokens; /* with the end token if there was one */
  size_t token_count;
} xformc_hypothesis;

/* Labels, of the engine's first result that is labels. */
typedef struct xformc_prediction {
  size_t positions;           /* 1 for a label of the whole; for tagging, one for each position */
  const int64_t* labels;      /* [positions] the most likely label of each, for xformc_engine_label */
  const float* probabilities; /* [positions, labels of the engine] */
} xformc_prediction;

/* The value of one result of the engine. Set `size` to sizeof(xformc_value): later versions add fields. */
typedef struct xformc_value {
  size_t size;
  const float* numbers; /* numbers, vectors, or the probabilities of labels, in row-major order */
  const int64_t* shape; /* [positions, ...], or for a result of the whole [...]; of labels [positions or 1, labels] */
  size_t rank;
  const int64_t* labels; /* labels: the ids of those that hold, row after row: the most likely one of each row; */
  const size_t* labels_per_row; /* if several may hold, those with a probability of 0.5 or more, and how many of each */
  size_t label_count;           /* of all rows */
} xformc_value;

/* The links of a translation with its source. Words are what stands between spaces, and end tokens are among the tokens;
 * all are counted from 0. Set `size` to sizeof(xformc_links): later versions add fields. */
typedef struct xformc_links {
  size_t size;
  const int64_t* words; /* [word_count, 2]: a word of the source, and one of the translation, in order */
  size_t word_count;
  const int64_t* tokens; /* [token_count, 2]: the same of tokens, in the order of the translation's */
  size_t token_count;
  const float* attention; /* [target_count, source_count]: what each token looked at when it was written */
  size_t target_count, source_count;
} xformc_links;

XFORMC_API size_t xformc_results_count(const xformc_results* results);
/* Number of hypotheses of one text: up to n_best for searches, 1 for continuations, 0 for predictions. */
XFORMC_API size_t xformc_results_hypothesis_count(const xformc_results* results, size_t index);
/* These return false, and leave the struct alone, if there is no such hypothesis or prediction. */
XFORMC_API bool xformc_results_hypothesis(const xformc_results* results, size_t index, size_t rank,
                                          xformc_hypothesis* hypothesis);
/* The log probability of each token of a hypothesis; NULL if there are no tokens, or none were asked for. */
XFORMC_API const float* xformc_results_token_scores(const xformc_results* results, size_t index, size_t rank);
XFORMC_API bool xformc_results_prediction(const xformc_results* results, size_t index, xformc_prediction* prediction);
/* The value of result `result` of xformc_engine_result for an example; false, and nothing is written, for text and
 * ctc, out of range, or for a size that the library does not know. */
XFORMC_API bool xformc_results_value(const xformc_results* results, size_t index, size_t result, xformc_value* value);
/* The same for a hypothesis of the text that the engine writes: of results that depend on it, otherwise false.
 * xformc_results_value gives those of the best hypothesis. */
XFORMC_API bool xformc_results_text_value(const xformc_results* results, size_t index, size_t rank, size_t result,
                                          xformc_value* value);
/* The number of hypotheses of result `result`, of kind "ctc", and one of them, the best first. A text is empty if the
 * result has no tokenizer; false out of range. */
XFORMC_API size_t xformc_results_transcript_count(const xformc_results* results, size_t index, size_t result);
XFORMC_API bool xformc_results_transcript(const xformc_results* results, size_t index, size_t result, size_t rank,
                                          xformc_hypothesis* hypothesis);
/* The links of a hypothesis; false, and nothing is written, if none were asked for, out of range, or for a size that the
 * library does not know. */
XFORMC_API bool xformc_results_links(const xformc_results* results, size_t index, size_t rank, xformc_links* links);
XFORMC_API void xformc_results_free(xformc_results* results);

/* Translates texts: for each up to n_best hypotheses, best first. An empty text has one hypothesis, "". Options may be
 * NULL here and below. */
XFORMC_API xformc_status xformc_translate(const xformc_engine* engine, const xformc_text* texts, size_t count,
                                          const xformc_search_options* search, const xformc_run_options* run,
                                          xformc_results** results, xformc_error** error);

/* Searches on token ids [rows, length]: each row ends with the end token (3) and is then padded with 0. */
XFORMC_API xformc_status xformc_search(const xformc_engine* engine, const int64_t* source, size_t rows, size_t length,
                                       const xformc_search_options* search, const xformc_run_options* run,
                                       xformc_results** results, xformc_error** error);

/* Links the words of `count` sources and their translations, without a search. Each pair has one hypothesis: the
 * translation with its tokens and links, and a score of 0. */
XFORMC_API xformc_status xformc_align(const xformc_engine* engine, const xformc_text* sources,
                                      const xformc_text* targets, size_t count, const xformc_run_options* run,
                                      xformc_results** results, xformc_error** error);

/* Whether the engine links texts, by xformc_align and the option `alignment`. */
XFORMC_API bool xformc_engine_aligns(const xformc_engine* engine);

/* Continues prompts with a language model. A continuation begins with a space if its first token begins a word. */
XFORMC_API xformc_status xformc_generate(const xformc_engine* engine, const xformc_text* prompts, size_t count,
                                         const xformc_sample_options* sampling, const xformc_run_options* run,
                                         xformc_results** results, xformc_error** error);

/* Gets a piece of the text that is being sampled, and a result with a count of 1: what was sampled so far. Both are valid
 * during the call. Returns 0 to go on, and anything else to end the call with XFORMC_CANCELLED. */
typedef int (*xformc_take)(void* data, xformc_text piece, const xformc_results* so_far);

/* Continues one prompt, and gives each piece of the text as it is sampled, in the calling thread: when it has grown by
 * whole characters. The pieces together, and the tokens and the score of `results`, are those of xformc_generate with the
 * same options. `results` may be NULL. */
XFORMC_API xformc_status xformc_stream_tokens(const xformc_engine* engine, xformc_text prompt, xformc_take take,
                                              void* take_data, const xformc_sample_options* sampling,
                                              const xformc_run_options* run, xformc_results** results,
                                              xformc_error** error);

/* Whether the engine gives tokens as they are sampled, by xformc_stream_tokens. */
XFORMC_API bool xformc_engine_streams(const xformc_engine* engine);

/* Scores texts by a language model, end tokens included: the score is the log probability, and each token has one. With
 * `prompts`, which may be NULL, a text is what follows its prompt: both are tokenized together, and the text has the
 * tokens that the prompt alone has not. Other engines score texts by xformc_search_options. */
XFORMC_API xformc_status xformc_score(const xformc_engine* engine, const xformc_text* prompts, const xformc_text* texts,
                                      size_t count, const xformc_run_options* run, xformc_results** results,
                                      xformc_error** error);

/* Computes the results of `count` examples. Each has a text for each of the engine's inputs, in order: count * inputs
 * texts. The text of a sound is the path of its .wav file, here and below. */
XFORMC_API xformc_status xformc_predict(const xformc_engine* engine, const xformc_text* texts, size_t count,
                                        const xformc_run_options* run, xformc_results** results, xformc_error** error);

typedef enum xformc_element { XFORMC_FLOAT32 = 1, XFORMC_INT64 = 7, XFORMC_BOOL = 9 } xformc_element;

/* An array in row-major order; bool has one byte for each element. */
typedef struct xformc_array {
  const char* name; /* an input, or NAME_lengths for the lengths of an input of vectors */
  xformc_element element;
  const void* data;
  const int64_t* shape;
  size_t rank;
} xformc_array;

/* The same for examples given as arrays: one for each input, whose first axis is the examples (docs/runtime.md). */
XFORMC_API xformc_status xformc_predict_arrays(const xformc_engine* engine, const xformc_array* arrays, size_t count,
                                               const xformc_run_options* run, xformc_results** results,
                                               xformc_error** error);

/* Writes text for `count` examples: for each up to n_best hypotheses, best first, and the engine's further results.
 * Each has a text for each of xformc_engine_given_input: count * inputs texts. */
XFORMC_API xformc_status xformc_transcribe(const xformc_engine* engine, const xformc_text* texts, size_t count,
                                           const xformc_search_options* search, const xformc_run_options* run,
                                           xformc_results** results, xformc_error** error);

/* The same for examples given as arrays: one for each given input, as for xformc_predict_arrays. */
XFORMC_API xformc_status xformc_transcribe_arrays(const xformc_engine* engine, const xformc_array* arrays, size_t count,
                                                  const xformc_search_options* search, const xformc_run_options* run,
                                                  xformc_results** results, xformc_error** error);

/* The same for engines that sample their text (decode: sample), whose further results are read in the same way. The
 * random seed of example i is that of the options plus i. */
XFORMC_API xformc_status xformc_sample(const xformc_engine* engine, const xformc_text* texts, size_t count,
                                       const xformc_sample_options* sampling, const xformc_run_options* run,
                                       xformc_results** results, xformc_error** error);
XFORMC_API xformc_status xformc_sample_arrays(const xformc_engine* engine, const xformc_array* arrays, size_t count,
                                              const xformc_sample_options* sampling, const xformc_run_options* run,
                                              xformc_results** results, xformc_error** error);

/* ---- Streams: any number of texts in constant memory, results in order. Callbacks run in the calling thread. ---- */

/* Writes the next text (for predictions and transcriptions: a text for each given input) to `texts`, valid until the
 * next call.
 * Returns 1 for a text, 0 at the end, and anything else to end the call with XFORMC_CANCELLED. */
typedef int (*xformc_read)(void* data, xformc_text* texts);

/* Gets the result of text `index`, as results with a count of 1 that are valid during the call.
 * Returns 0 to go on, and anything else to end the call with XFORMC_CANCELLED. */
typedef int (*xformc_write)(void* data, size_t index, const xformc_results* result);

/* A text that is invalid ends the call with its error, after the results of the texts before it. */
XFORMC_API xformc_status xformc_translate_stream(const xformc_engine* engine, xformc_read read, void* read_data,
                                                 xformc_write write, void* write_data,
                                                 const xformc_search_options* search, const xformc_run_options* run,
                                                 xformc_error** error);
/* `read` writes two texts, a source and its translation. */
XFORMC_API xformc_status xformc_align_stream(const xformc_engine* engine, xformc_read read, void* read_data,
                                             xformc_write write, void* write_data, const xformc_run_options* run,
                                             xformc_error** error);

XFORMC_API xformc_status xformc_generate_stream(const xformc_engine* engine, xformc_read read, void* read_data,
                                                xformc_write write, void* write_data,
                                                const xformc_sample_options* sampling, const xformc_run_options* run,
                                                xformc_error** error);
XFORMC_API xformc_status xformc_predict_stream(const xformc_engine* engine, xformc_read read, void* read_data,
                                               xformc_write write, void* write_data, const xformc_run_options* run,
                                               xformc_error** error);

/* `read` writes a text for each of xformc_engine_given_input. */
XFORMC_API xformc_status xformc_transcribe_stream(const xformc_engine* engine, xformc_read read, void* read_data,
                                                  xformc_write write, void* write_data,
                                                  const xformc_search_options* search, const xformc_run_options* run,
                                                  xformc_error** error);

XFORMC_API xformc_status xformc_sample_stream(const xformc_engine* engine, xformc_read read, void* read_data,
                                              xformc_write write, void* write_data,
                                              const xformc_sample_options* sampling, const xformc_run_options* run,
                                              xformc_error** error);

/* ---- Tokens ---------------------------------------------------------------------------------------------------- */

/* Writes the token ids of a text of the input `input`, with the end token, to `ids` if `capacity` is enough, and their
 * number to `count` in any case. */
XFORMC_API xformc_status xformc_encode(const xformc_engine* engine, const char* input, xformc_text text, int64_t* ids,
                                       size_t capacity, size_t* count, xformc_error** error);

/* Writes the text of token ids of the input `input`, without special tokens, to `text` if `capacity` is enough, and its
 * size in bytes to `size` in any case. */
XFORMC_API xformc_status xformc_decode(const xformc_engine* engine, const char* input, const int64_t* ids, size_t count,
                                       char* text, size_t capacity, size_t* size, xformc_error** error);

/* The same for the piece of a token in the vocabulary: U+2581 is a space; <unk>, <s> and </s> are special. */
XFORMC_API xformc_status xformc_piece(const xformc_engine* engine, const char* input, int64_t id, char* text,
                                      size_t capacity, size_t* size, xformc_error** error);

#ifdef __cplusplus
}
#endif

#endif
