// The C API: no exception leaves a function here.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>

#include "controls.h"
#include "edits.h"
#include "engine.h"
#include "failure.h"
#include "include/xformc.h"
#include "numbers.h"
#include "unicode.h"

using xformc::Batching;
using xformc::Engine;
using xformc::Failure;
using xformc::Hypothesis;
using xformc::Manifest;
using xformc::Result;
using xformc::Task;

struct xformc_error {
  xformc_status status;
  std::string message, place, hint;
};

struct xformc_engine {
  xformc::Engine engine;
};

struct xformc_results {
  std::vector<Result> items;
};

namespace {

// The one error that needs no memory; it is not freed.
xformc_error NO_MEMORY{XFORMC_OUT_OF_MEMORY, "out of memory", "", ""};

xformc_status report(xformc_error** error, xformc_status status, std::string message, std::string place = "",
                     std::string hint = "") {
  if (error != nullptr) *error = new xformc_error{status, std::move(message), std::move(place), std::move(hint)};
  return status;
}

// The status of the exception that is being handled.
xformc_status report_exception(xformc_error** error) {
  try {
    throw;
  } catch (const Failure& failure) {
    return report(error, failure.status, failure.message, failure.place, failure.hint);
  } catch (const std::filesystem::filesystem_error& failure) {
    return report(error, XFORMC_INVALID_ENGINE, failure.code().message(), failure.path1().string(), xformc::COPY);
  } catch (const std::system_error& failure) {
    return report(error, XFORMC_RUN_FAILED, failure.what());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::length_error&) {
    throw std::bad_alloc();
  } catch (const std::exception& failure) {
    return report(error, XFORMC_INTERNAL_ERROR, failure.what(), "",
                  "please report this, unless the caller's function threw it");
  } catch (...) {
    return report(error, XFORMC_INTERNAL_ERROR, "an unknown exception", "", "did the caller's function throw it?");
  }
}

// Runs the body of a function; an exception becomes its status.
template <typename Body>
xformc_status guarded(xformc_error** error, const Body& body) noexcept {
  if (error != nullptr) *error = nullptr;
  try {
    try {
      body();
      return XFORMC_OK;
    } catch (...) {
      return report_exception(error);
    }
  } catch (...) {
    if (error != nullptr) *error = &NO_MEMORY;
    return XFORMC_OUT_OF_MEMORY;
  }
}

void require(const void* pointer, const char* name) {
  if (pointer == nullptr) throw xformc::invalid_argument(std::string(name) + " is NULL");
}

void require_texts(const xformc_engine* engine, const xformc_text* texts, size_t count, const void* results) {
  require(engine, "engine");
  require(results, "results");
  if (count > 0) require(texts, "texts");
}

template <typename Options>
void init(Options* options, size_t size, const Options& defaults) {
  if (options == nullptr || size < sizeof options->size) return;
  std::memset(static_cast<void*>(options), 0, size);
  std::memcpy(static_cast<void*>(options), &defaults, std::min(size, sizeof defaults));
  options->size = size;
}

// Writes as many of the values as the caller's struct has.
template <typename Options>
void fill(Options* options, const Options& values) {
  std::memcpy(static_cast<void*>(options), &values, std::min(options->size, sizeof values));
}

const char* text_of(const xformc_engine* engine, std::string Manifest::* field) {
  return engine == nullptr ? "" : (engine->engine.manifest().*field).c_str();
}

// Writes the values to a struct of a size that this library knows; returns false for another size.
template <typename Struct>
bool fill_known(Struct* given, const Struct& values) {
  if (given == nullptr || given->size != sizeof values) return false;  // no struct has grown yet
  *given = values;
  return true;
}

// Writes the value of a result; returns false for text and alignments, out of range, or for another size.
bool read_value(const std::vector<xformc::Value>& values, size_t result, xformc_value* value) {
  if (result >= values.size()) return false;
  const xformc::Value& found = values[result];
  if (found.kind == xformc::ResultKind::text || found.kind == xformc::ResultKind::ctc) return false;
  return fill_known(value, {sizeof *value, found.numbers.data(), found.shape.data(), found.shape.size(),
                            found.labels.data(), found.per_row.data(), found.labels.size()});
}

xformc_input described(const xformc::Engine& engine, const xformc::Input& input) {
  return {input.name.c_str(), input.kind_name(), input.vocabulary, input.longest.value_or(0),
          engine.has_tokenizer(input.name)};
}

xformc_hypothesis described(const Hypothesis& one) {
  return {{one.text.c_str(), one.text.size()}, one.score, one.tokens.data(), one.tokens.size()};
}

// The caller's functions for the items of a stream.
struct Callbacks {
  xformc_read read;
  void* read_data;
  xformc_write write;
  void* write_data;
};

// A task, and the number of texts of each item.
struct Work {
  std::unique_ptr<Task> task;
  size_t texts;
};

// A task whose items have a text for each given input. Throws Failure if the engine takes more than texts.
Work several(const Engine& engine, std::unique_ptr<Task> task) {
  engine.check_texts();
  return {std::move(task), engine.manifest().given.size()};
}

void run_stream(const Engine& engine, const Work& work, const Batching& batching, xformc_cancel* cancel,
                const Callbacks& caller) {
  if (caller.read == nullptr || caller.write == nullptr) throw xformc::invalid_argument("read or write is NULL");
  size_t index = 0;
  xformc_results one;
  const auto reads = [&](xformc_text* texts) {
    const int given = caller.read(caller.read_data, texts);
    if (given == 0 || given == 1) return given == 1;
    throw Failure(XFORMC_CANCELLED, "the call was ended by its read function");
  };
  const auto writes = [&](Result&& result) {
    one.items.clear();
    one.items.push_back(std::move(result));
    if (caller.write(caller.write_data, index++, &one) == 0) return;
    throw Failure(XFORMC_CANCELLED, "the call was ended by its write function");
  };
  engine.stream(*work.task, batching, cancel, work.texts, reads, writes);
}

// Each of the first texts, which are empty if there are none, and then the second one.
std::vector<xformc_text> paired(const xformc_text* first, const xformc_text* second, size_t count) {
  std::vector<xformc_text> pairs;
  for (size_t i = 0; i < count; ++i) {
    pairs.push_back(first == nullptr ? xformc_text{"", 0} : first[i]);
    pairs.push_back(second[i]);
  }
  return pairs;
}

// Runs an engine on texts. `make(engine, batching)` returns the Work.
template <typename Make>
xformc_status from_texts(const xformc_engine* engine, const xformc_text* texts, size_t count,
                         const xformc_run_options* run, xformc_results** results, xformc_error** error,
                         const Make& make) {
  return guarded(error, [&] {
    require_texts(engine, texts, count, results);
    const Engine& loaded = engine->engine;
    const xformc_run_options options = xformc::read_options(run);
    const Batching batching = loaded.batching(options);
    const Work work = make(loaded, batching);
    *results = new xformc_results{loaded.all(*work.task, batching, options.cancel, texts, count, work.texts)};
  });
}

// Runs an engine on arrays. `make(engine, batching)` returns the task.
template <typename Make>
xformc_status from_arrays(const xformc_engine* engine, const xformc_array* arrays, size_t count,
                          const xformc_run_options* run, xformc_results** results, xformc_error** error,
                          const Make& make) {
  return guarded(error, [&] {
    require(engine, "engine");
    require(results, "results");
    const Engine& loaded = engine->engine;
    const xformc_run_options options = xformc::read_options(run);
    const Batching batching = loaded.batching(options);
    const auto task = make(loaded, batching);
    if (count > 0) require(arrays, "arrays");
    auto rows = xformc::read_rows(loaded.manifest().given, arrays, count);
    *results = new xformc_results{loaded.all(*task, batching, options.cancel, std::move(rows))};
  });
}

// Runs an engine on a stream of texts. `make(engine, batching)` returns the Work.
template <typename Make>
xformc_status from_stream(const xformc_engine* engine, const Callbacks& caller, const xformc_run_options* run,
                          xformc_error** error, const Make& make) {
  return guarded(error, [&] {
    require(engine, "engine");
    const Engine& loaded = engine->engine;
    const xformc_run_options options = xformc::read_options(run);
    const Batching batching = loaded.batching(options);
    run_stream(loaded, make(loaded, batching), batching, options.cancel, caller);
  });
}

}  // namespace

extern "C" {

xformc_status xformc_error_status(const xformc_error* error) { return error == nullptr ? XFORMC_OK : error->status; }
const char* xformc_error_message(const xformc_error* error) { return error == nullptr ? "" : error->message.c_str(); }
const char* xformc_error_place(const xformc_error* error) { return error == nullptr ? "" : error->place.c_str(); }
const char* xformc_error_hint(const xformc_error* error) { return error == nullptr ? "" : error->hint.c_str(); }

void xformc_error_free(xformc_error* error) {
  if (error != &NO_MEMORY) delete error;
}

const char* xformc_version(void) { return XFORMC_VERSION; }

void xformc_load_options_init(xformc_load_options* options, size_t size) {
  init(options, size, xformc_load_options{size, XFORMC_DEFAULT, 1, true, nullptr, nullptr, nullptr});
}

void xformc_run_options_init(xformc_run_options* options, size_t size) {
  init(options, size,
       xformc_run_options{size, XFORMC_DEFAULT, XFORMC_DEFAULT, XFORMC_DEFAULT, false, nullptr, false, XFORMC_DEFAULT,
                          false});
}

void xformc_search_options_init(xformc_search_options* options, size_t size) {
  init(options, size,
       xformc_search_options{size,
                             XFORMC_DEFAULT,
                             XFORMC_DEFAULT,
                             NAN,
                             NAN,
                             XFORMC_DEFAULT,
                             XFORMC_DEFAULT,
                             nullptr,
                             0,
                             false,
                             nullptr,
                             nullptr,
                             NAN,
                             nullptr,
                             nullptr,
                             0,
                             XFORMC_DEFAULT,
                             NAN,
                             NAN,
                             NAN,
                             XFORMC_DEFAULT,
                             NAN,
                             NAN,
                             NAN});
}

void xformc_sample_options_init(xformc_sample_options* options, size_t size) {
  init(options, size,
       xformc_sample_options{size, 0, NAN, XFORMC_DEFAULT, NAN, XFORMC_DEFAULT, nullptr, 0, XFORMC_DEFAULT, NAN, NAN,
                             NAN, nullptr, 0});
}

xformc_status xformc_load(const char* folder, const xformc_load_options* options, xformc_engine** engine,
                          xformc_error** error) {
  return guarded(error, [&] {
    require(folder, "folder");
    require(engine, "engine");
    const xformc::DefaultFloats floats;
    *engine = new xformc_engine{xformc::Engine(folder, xformc::read_options(options))};
  });
}

void xformc_engine_free(xformc_engine* engine) {
  // In a forked process, ONNX Runtime would wait for its threads for ever: what the parent loaded stays.
  if (engine != nullptr && engine->engine.is_here()) delete engine;
}

const char* xformc_engine_name(const xformc_engine* engine) { return text_of(engine, &Manifest::name); }
const char* xformc_engine_task(const xformc_engine* engine) { return text_of(engine, &Manifest::task); }
const char* xformc_engine_target(const xformc_engine* engine) { return text_of(engine, &Manifest::target); }
const char* xformc_engine_precision(const xformc_engine* engine) { return text_of(engine, &Manifest::precision); }

const char* xformc_engine_onnxruntime(const xformc_engine* engine) {
  return engine == nullptr ? "" : engine->engine.onnxruntime();
}

size_t xformc_engine_input_count(const xformc_engine* engine) {
  return engine == nullptr ? 0 : engine->engine.manifest().inputs.size();
}

size_t xformc_engine_label_count(const xformc_engine* engine) {
  const auto* found = engine == nullptr ? nullptr : engine->engine.manifest().labels();
  return found == nullptr ? 0 : found->labels.size();
}

bool xformc_engine_input(const xformc_engine* engine, size_t index, xformc_input* input) {
  if (index >= xformc_engine_input_count(engine) || input == nullptr) return false;
  *input = described(engine->engine, engine->engine.manifest().inputs[index]);
  return true;
}

const char* xformc_engine_label(const xformc_engine* engine, size_t index) {
  return index < xformc_engine_label_count(engine) ? engine->engine.manifest().labels()->labels[index].c_str()
                                                   : nullptr;
}

size_t xformc_engine_given_input_count(const xformc_engine* engine) {
  return engine == nullptr ? 0 : engine->engine.manifest().given.size();
}

bool xformc_engine_given_input(const xformc_engine* engine, size_t index, xformc_input* input) {
  if (index >= xformc_engine_given_input_count(engine) || input == nullptr) return false;
  *input = described(engine->engine, engine->engine.manifest().given[index]);
  return true;
}

int64_t xformc_engine_given_input_rate(const xformc_engine* engine, size_t index) {
  return index < xformc_engine_given_input_count(engine) ? engine->engine.manifest().given[index].rate : 0;
}

size_t xformc_engine_result_count(const xformc_engine* engine) {
  return engine == nullptr ? 0 : engine->engine.manifest().results.size();
}

bool xformc_engine_result(const xformc_engine* engine, size_t index, xformc_result* result) {
  if (index >= xformc_engine_result_count(engine)) return false;
  const xformc::DeclaredResult& found = engine->engine.manifest().results[index];
  const char* positions = found.positions.empty() ? nullptr : found.positions.c_str();
  return fill_known(result, {sizeof *result, found.name.c_str(), found.kind_name(), positions, found.labels.size(),
                             found.several, engine->engine.has_tokenizer(found.name)});
}

const char* xformc_engine_result_label(const xformc_engine* engine, size_t index, size_t label) {
  if (index >= xformc_engine_result_count(engine)) return nullptr;
  const auto& labels = engine->engine.manifest().results[index].labels;
  return label < labels.size() ? labels[label].c_str() : nullptr;
}

bool xformc_engine_search_options(const xformc_engine* engine, xformc_search_options* options) {
  if (options == nullptr || engine == nullptr || engine->engine.manifest().decoding() != xformc::Decoding::search) {
    return false;
  }
  const xformc::SearchOptions& found = engine->engine.manifest().search;
  const bool has_preset = options->size >= offsetof(xformc_search_options, preset) + sizeof options->preset;
  const char* const name = has_preset ? options->preset : nullptr;
  xformc_search_options shown = xformc::read_options(static_cast<const xformc_search_options*>(nullptr));
  shown.size = options->size;
  shown.beam_size = found.beam_size;
  shown.n_best = found.n_best;
  shown.length_penalty = found.length_penalty;
  shown.max_length_factor = found.max_length_factor;
  shown.max_length_offset = found.max_length_offset;
  xformc::show_edits(found.edits, engine->engine.suppressed(), shown);
  for (size_t i = 0; i < xformc::controls().size(); ++i) show(xformc::controls()[i], found.controls.at(i), shown);
  for (const xformc::Preset& preset : xformc::presets()) {
    if (name == nullptr || std::string(name) != preset.name) continue;
    shown.length_penalty = preset.length_penalty;
    shown.length_penalty_kind = preset.length_penalty_kind;
    shown.stop_rule = preset.stop_rule;
    shown.patience = preset.patience;
  }
  fill(options, shown);
  return true;
}

bool xformc_engine_sample_options(const xformc_engine* engine, xformc_sample_options* options) {
  if (options == nullptr || engine == nullptr || engine->engine.manifest().task != "language_model") return false;
  const xformc::SampleOptions& found = engine->engine.manifest().sampling;
  xformc_sample_options shown{};
  shown.size = options->size;
  shown.temperature = found.temperature;
  shown.top_k = found.top_k;
  shown.top_p = found.top_p;
  shown.max_new_tokens = found.max_new_tokens;
  xformc::show_edits(found.edits, engine->engine.suppressed(), shown);
  fill(options, shown);
  return true;
}

xformc_cancel* xformc_cancel_new(void) { return new (std::nothrow) xformc_cancel; }

void xformc_cancel_now(xformc_cancel* cancel) {
  if (cancel != nullptr) cancel->now();
}

void xformc_cancel_free(xformc_cancel* cancel) { delete cancel; }

size_t xformc_results_count(const xformc_results* results) { return results == nullptr ? 0 : results->items.size(); }

size_t xformc_results_hypothesis_count(const xformc_results* results, size_t index) {
  return index < xformc_results_count(results) ? results->items[index].hypotheses.size() : 0;
}

bool xformc_results_hypothesis(const xformc_results* results, size_t index, size_t rank,
                               xformc_hypothesis* hypothesis) {
  if (rank >= xformc_results_hypothesis_count(results, index) || hypothesis == nullptr) return false;
  *hypothesis = described(results->items[index].hypotheses[rank]);
  return true;
}

const float* xformc_results_token_scores(const xformc_results* results, size_t index, size_t rank) {
  if (rank >= xformc_results_hypothesis_count(results, index)) return nullptr;
  const Hypothesis& one = results->items[index].hypotheses[rank];
  return one.token_scores.empty() ? nullptr : one.token_scores.data();
}

bool xformc_results_prediction(const xformc_results* results, size_t index, xformc_prediction* prediction) {
  if (index >= xformc_results_count(results) || prediction == nullptr) return false;
  const Result& item = results->items[index];
  if (!item.hypotheses.empty()) return false;
  const auto found = std::find_if(item.values.begin(), item.values.end(),
                                  [](const xformc::Value& one) { return one.kind == xformc::ResultKind::labels; });
  if (found == item.values.end()) return false;
  *prediction = {found->best.size(), found->best.data(), found->numbers.data()};
  return true;
}

bool xformc_results_value(const xformc_results* results, size_t index, size_t result, xformc_value* value) {
  return index < xformc_results_count(results) && read_value(results->items[index].values, result, value);
}

bool xformc_results_text_value(const xformc_results* results, size_t index, size_t rank, size_t result,
                               xformc_value* value) {
  return rank < xformc_results_hypothesis_count(results, index) &&
         read_value(results->items[index].hypotheses[rank].values, result, value);
}

size_t xformc_results_transcript_count(const xformc_results* results, size_t index, size_t result) {
  if (index >= xformc_results_count(results) || result >= results->items[index].values.size()) return 0;
  return results->items[index].values[result].hypotheses.size();
}

bool xformc_results_transcript(const xformc_results* results, size_t index, size_t result, size_t rank,
                               xformc_hypothesis* hypothesis) {
  if (rank >= xformc_results_transcript_count(results, index, result) || hypothesis == nullptr) return false;
  *hypothesis = described(results->items[index].values[result].hypotheses[rank]);
  return true;
}

bool xformc_results_links(const xformc_results* results, size_t index, size_t rank, xformc_links* links) {
  if (rank >= xformc_results_hypothesis_count(results, index)) return false;
  const auto& found = results->items[index].hypotheses[rank].links;
  if (!found) return false;
  return fill_known(links, {sizeof *links, found->words.data(), found->words.size() / 2, found->tokens.data(),
                            found->tokens.size() / 2, found->attention.data(), static_cast<size_t>(found->targets),
                            static_cast<size_t>(found->sources)});
}

void xformc_results_free(xformc_results* results) { delete results; }

xformc_status xformc_translate(const xformc_engine* engine, const xformc_text* texts, size_t count,
                               const xformc_search_options* search, const xformc_run_options* run,
                               xformc_results** results, xformc_error** error) {
  return from_texts(engine, texts, count, run, results, error, [&](const Engine& loaded, const Batching& batching) {
    return Work{loaded.translation(search, batching), 1};
  });
}

xformc_status xformc_search(const xformc_engine* engine, const int64_t* source, size_t rows, size_t length,
                            const xformc_search_options* search, const xformc_run_options* run,
                            xformc_results** results, xformc_error** error) {
  return guarded(error, [&] {
    require(engine, "engine");
    require(results, "results");
    size_t total = 0;
    if (__builtin_mul_overflow(rows, length, &total) || total > PTRDIFF_MAX / sizeof *source) {
      throw xformc::invalid_argument("rows * length is too large");
    }
    if (total > 0) require(source, "source");
    *results = new xformc_results{engine->engine.search(source, rows, length, search, xformc::read_options(run))};
  });
}

xformc_status xformc_generate(const xformc_engine* engine, const xformc_text* prompts, size_t count,
                              const xformc_sample_options* sampling, const xformc_run_options* run,
                              xformc_results** results, xformc_error** error) {
  return from_texts(engine, prompts, count, run, results, error, [&](const Engine& loaded, const Batching& batching) {
    return Work{loaded.generation(sampling, batching), 1};
  });
}

xformc_status xformc_stream_tokens(const xformc_engine* engine, xformc_text prompt, xformc_take take, void* take_data,
                                   const xformc_sample_options* sampling, const xformc_run_options* run,
                                   xformc_results** results, xformc_error** error) {
  return guarded(error, [&] {
    require(engine, "engine");
    require(reinterpret_cast<const void*>(take), "take");
    xformc_results so_far{{Result{}}};
    const auto takes = [&](const std::string& piece, const Hypothesis& found) {
      so_far.items[0].hypotheses = {found};
      if (take(take_data, {piece.c_str(), piece.size()}, &so_far) == 0) return;
      throw Failure(XFORMC_CANCELLED, "the call was ended by its take function");
    };
    Result found = engine->engine.stream_tokens(prompt, sampling, xformc::read_options(run), takes);
    if (results != nullptr) *results = new xformc_results{{std::move(found)}};
  });
}

bool xformc_engine_streams(const xformc_engine* engine) {
  return engine != nullptr && engine->engine.manifest().streams();
}

bool xformc_engine_aligns(const xformc_engine* engine) {
  return engine != nullptr && engine->engine.manifest().aligns();
}

xformc_status xformc_align(const xformc_engine* engine, const xformc_text* sources, const xformc_text* targets,
                           size_t count, const xformc_run_options* run, xformc_results** results,
                           xformc_error** error) {
  return guarded(error, [&] {
    require_texts(engine, sources, count, results);
    if (count > 0) require(targets, "targets");
    const Engine& loaded = engine->engine;
    xformc_run_options options = xformc::read_options(run);
    const auto task = loaded.aligning(loaded.batching(options));
    options.alignment = true;
    const std::vector<xformc_text> pairs = paired(sources, targets, count);
    *results = new xformc_results{loaded.all(*task, loaded.batching(options), options.cancel, pairs.data(), count, 2)};
  });
}

xformc_status xformc_score(const xformc_engine* engine, const xformc_text* prompts, const xformc_text* texts,
                           size_t count, const xformc_run_options* run, xformc_results** results,
                           xformc_error** error) {
  return guarded(error, [&] {
    require_texts(engine, texts, count, results);
    const Engine& loaded = engine->engine;
    xformc_run_options options = xformc::read_options(run);
    const auto task = loaded.scoring(loaded.batching(options));
    options.token_scores = true;
    const std::vector<xformc_text> pairs = paired(prompts, texts, count);
    *results = new xformc_results{loaded.all(*task, loaded.batching(options), options.cancel, pairs.data(), count, 2)};
  });
}

xformc_status xformc_predict(const xformc_engine* engine, const xformc_text* texts, size_t count,
                             const xformc_run_options* run, xformc_results** results, xformc_error** error) {
  return from_texts(engine, texts, count, run, results, error, [&](const Engine& loaded, const Batching& batching) {
    return several(loaded, loaded.prediction(batching));
  });
}

xformc_status xformc_predict_arrays(const xformc_engine* engine, const xformc_array* arrays, size_t count,
                                    const xformc_run_options* run, xformc_results** results, xformc_error** error) {
  return from_arrays(engine, arrays, count, run, results, error,
                     [&](const Engine& loaded, const Batching& batching) { return loaded.prediction(batching); });
}

xformc_status xformc_transcribe(const xformc_engine* engine, const xformc_text* texts, size_t count,
                                const xformc_search_options* search, const xformc_run_options* run,
                                xformc_results** results, xformc_error** error) {
  return from_texts(engine, texts, count, run, results, error, [&](const Engine& loaded, const Batching& batching) {
    return several(loaded, loaded.transcription(search, batching));
  });
}

xformc_status xformc_transcribe_arrays(const xformc_engine* engine, const xformc_array* arrays, size_t count,
                                       const xformc_search_options* search, const xformc_run_options* run,
                                       xformc_results** results, xformc_error** error) {
  return from_arrays(engine, arrays, count, run, results, error, [&](const Engine& loaded, const Batching& batching) {
    return loaded.transcription(search, batching);
  });
}

xformc_status xformc_sample(const xformc_engine* engine, const xformc_text* texts, size_t count,
                            const xformc_sample_options* sampling, const xformc_run_options* run,
                            xformc_results** results, xformc_error** error) {
  return from_texts(engine, texts, count, run, results, error, [&](const Engine& loaded, const Batching& batching) {
    return several(loaded, loaded.sampling(sampling, batching));
  });
}

xformc_status xformc_sample_arrays(const xformc_engine* engine, const xformc_array* arrays, size_t count,
                                   const xformc_sample_options* sampling, const xformc_run_options* run,
                                   xformc_results** results, xformc_error** error) {
  return from_arrays(engine, arrays, count, run, results, error, [&](const Engine& loaded, const Batching& batching) {
    return loaded.sampling(sampling, batching);
  });
}

xformc_status xformc_translate_stream(const xformc_engine* engine, xformc_read read, void* read_data,
                                      xformc_write write, void* write_data, const xformc_search_options* search,
                                      const xformc_run_options* run, xformc_error** error) {
  return from_stream(
      engine, {read, read_data, write, write_data}, run, error,
      [&](const Engine& loaded, const Batching& batching) { return Work{loaded.translation(search, batching), 1}; });
}

xformc_status xformc_align_stream(const xformc_engine* engine, xformc_read read, void* read_data, xformc_write write,
                                  void* write_data, const xformc_run_options* run, xformc_error** error) {
  return guarded(error, [&] {
    require(engine, "engine");
    const Engine& loaded = engine->engine;
    xformc_run_options options = xformc::read_options(run);
    auto task = loaded.aligning(loaded.batching(options));
    options.alignment = true;
    run_stream(loaded, {std::move(task), 2}, loaded.batching(options), options.cancel,
               {read, read_data, write, write_data});
  });
}

xformc_status xformc_generate_stream(const xformc_engine* engine, xformc_read read, void* read_data, xformc_write write,
                                     void* write_data, const xformc_sample_options* sampling,
                                     const xformc_run_options* run, xformc_error** error) {
  return from_stream(
      engine, {read, read_data, write, write_data}, run, error,
      [&](const Engine& loaded, const Batching& batching) { return Work{loaded.generation(sampling, batching), 1}; });
}

xformc_status xformc_predict_stream(const xformc_engine* engine, xformc_read read, void* read_data, xformc_write write,
                                    void* write_data, const xformc_run_options* run, xformc_error** error) {
  return from_stream(
      engine, {read, read_data, write, write_data}, run, error,
      [&](const Engine& loaded, const Batching& batching) { return several(loaded, loaded.prediction(batching)); });
}

xformc_status xformc_transcribe_stream(const xformc_engine* engine, xformc_read read, void* read_data,
                                       xformc_write write, void* write_data, const xformc_search_options* search,
                                       const xformc_run_options* run, xformc_error** error) {
  return from_stream(engine, {read, read_data, write, write_data}, run, error,
                     [&](const Engine& loaded, const Batching& batching) {
                       return several(loaded, loaded.transcription(search, batching));
                     });
}

xformc_status xformc_sample_stream(const xformc_engine* engine, xformc_read read, void* read_data, xformc_write write,
                                   void* write_data, const xformc_sample_options* sampling,
                                   const xformc_run_options* run, xformc_error** error) {
  return from_stream(engine, {read, read_data, write, write_data}, run, error,
                     [&](const Engine& loaded, const Batching& batching) {
                       return several(loaded, loaded.sampling(sampling, batching));
                     });
}

xformc_status xformc_encode(const xformc_engine* engine, const char* input, xformc_text text, int64_t* ids,
                            size_t capacity, size_t* count, xformc_error** error) {
  return guarded(error, [&] {
    require(engine, "engine");
    require(input, "input");
    require(count, "count");
    if (text.size > 0) require(text.data, "text");
    const std::string_view given(text.size > 0 ? text.data : "", text.size);
    if (!xformc::is_utf8(given)) throw xformc::invalid_argument("not valid Unicode text");
    const xformc::Ids found = engine->engine.vocabulary(input).encode(given);
    *count = found.size();
    if (found.size() <= capacity && ids != nullptr) std::copy(found.begin(), found.end(), ids);
  });
}

xformc_status xformc_piece(const xformc_engine* engine, const char* input, int64_t id, char* text, size_t capacity,
                           size_t* size, xformc_error** error) {
  return guarded(error, [&] {
    require(engine, "engine");
    require(input, "input");
    require(size, "size");
    const std::string found = engine->engine.vocabulary(input).piece(id);
    *size = found.size();
    if (found.size() <= capacity && text != nullptr) std::copy(found.begin(), found.end(), text);
  });
}

xformc_status xformc_decode(const xformc_engine* engine, const char* input, const int64_t* ids, size_t count,
                            char* text, size_t capacity, size_t* size, xformc_error** error) {
  return guarded(error, [&] {
    require(engine, "engine");
    require(input, "input");
    require(size, "size");
    if (count > 0) require(ids, "ids");
    const std::string found = engine->engine.vocabulary(input).decode({ids, ids + count});
    *size = found.size();
    if (found.size() <= capacity && text != nullptr) std::copy(found.begin(), found.end(), text);
  });
}

}  // extern "C"
