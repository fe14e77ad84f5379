#include "engine.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "../kernels/library.h"
#include "alignment.h"
#include "failure.h"
#include "prefix.h"
#include "token_scores.h"

namespace xformc {
namespace {

constexpr size_t LARGEST_WINDOW = 1 << 16;  // items sorted by size at a time, if all items are given at once

// The names of these inputs of the model, with a mask after each input of vectors.
std::vector<std::string> model_inputs(const std::vector<Input>& inputs) {
  std::vector<std::string> names;
  for (const Input& input : inputs) {
    names.push_back(input.name);
    if (input.kind == Kind::vectors && input.has_positions()) names.push_back(input.name + "_mask");
  }
  return names;
}

// The outputs of the results that depend on the written text, or of the others.
std::vector<std::string> model_outputs(const Manifest& manifest, bool of_text) {
  std::vector<std::string> names;
  for (const DeclaredResult& result : manifest.results) {
    if (result.of.empty() == of_text) continue;
    names.insert(names.end(), result.outputs.begin(), result.outputs.end());
  }
  return names;
}

// The inputs and outputs of an engine's model.
Interface interface_of(const Manifest& manifest) {
  Interface interface;
  interface.outputs = model_outputs(manifest, false);
  interface.inputs = model_inputs(manifest.given);
  const auto add = [&](std::initializer_list<const char*> names) {
    interface.inputs.insert(interface.inputs.end(), names.begin(), names.end());
  };
  if (manifest.decoding() == Decoding::search) {
    add({"beam_size", "n_best", "length_penalty", "max_length_factor", "max_length_offset"});
  } else if (manifest.decoding() == Decoding::sample) {
    add({"prompt", "seed", "max_new_tokens", "temperature", "top_k", "top_p"});
  }
  return interface;
}

ModelFiles model_files(const std::filesystem::path& folder, const Manifest& manifest) {
  ModelFiles files{{folder / "model.onnx", interface_of(manifest)}, {}, {}, {}, {}, {}};
  const std::vector<std::string> all = model_inputs(manifest.inputs);
  if (manifest.has_results_of_text()) files.of_text = {folder / "results.onnx", {all, model_outputs(manifest, true)}};
  if (manifest.has_file(SCORES)) files.scores = {folder / SCORES, {all, {"token_scores"}}};
  if (manifest.aligns()) files.alignments = {folder / ALIGNMENTS, {all, {"attention"}}};
  if (!manifest.streams()) return files;
  files.prompt = {folder / PROMPT, {{"prompt", "max_new_tokens"}, {"step/at", "step/positions", "step/done"}, true}};
  files.following = {folder / CONTINUE,
                     {{"seed", "max_new_tokens", "temperature", "top_k", "top_p", "count", "step/at"},
                      {"tokens", "step/at_next", "step/done_next", "step/scores_next"},
                      true}};
  return files;
}

// What a call of so many workers needs beside the model.

// The tasks whose engines have this method, those with a word in specs if there are any.
std::vector<std::string> tasks_with(const std::string& method) {
  std::vector<std::string> words, all;
  for (const EngineTask& task : engine_tasks()) {
    if (task.method != method) continue;
    all.emplace_back(task.name);
    if (!declares_results(task.name)) words.emplace_back(task.name);
  }
  return words.empty() ? all : words;
}

// The function of the C API that runs an engine of this task.
std::string function_of(const std::string& task) {
  return std::string("xformc_") + (task == SAMPLED ? "sample" : engine_task(task).method);
}

void check_operators(const std::string& place, const Manifest& manifest) {
  const int64_t needed = manifest.operators.value_or(OPERATORS);
  if (needed == OPERATORS) return;
  throw invalid_engine("this engine needs version " + std::to_string(needed) +
                           " of xformc's operators; this xformc has version " + std::to_string(OPERATORS),
                       place, OTHER_VERSION);
}

void check_target(const std::string& place, const Manifest& manifest) {
  if (manifest.target != "cuda" && manifest.target != "tensorrt") return;
  throw invalid_engine("libxformc runs on the CPU; this is an engine of target " + manifest.target, place,
                       std::string("run it with xformc's Python runtime, or ") + BUILD_FOR_CPUS);
}

// The error of a text whose tokenizer this library lacks.
Failure unread(const std::string& lacking, const Manifest& manifest) {
  return invalid_argument("this library does not read the tokenizer of " + manifest.name + ": it has " + lacking, "",
                          "run the engine with xformc's Python runtime, or give token ids");
}

// What tells a file from another one of its name, and from itself after a write.
std::array<int64_t, 5> state_of(const std::filesystem::path& file) {
  struct stat found = {};
  if (stat(file.c_str(), &found) != 0) return {};
  return {static_cast<int64_t>(found.st_dev), static_cast<int64_t>(found.st_ino), found.st_size, found.st_mtim.tv_sec,
          found.st_mtim.tv_nsec};
}

// A call that runs, as its xformc_cancel knows it.
class Running {
 public:
  Running(xformc_cancel* cancel, Stopper& stopper) : cancel_(cancel), stopper_(stopper) {
    if (cancel_ != nullptr) cancel_->add(stopper_);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    if (cancel_ != nullptr) cancel_->remove(stopper_);
  }

 private:
  xformc_cancel* cancel_;
  Stopper& stopper_;
};

void check_source(const int64_t* source, size_t rows, size_t length, const Input& input) {
  const int64_t* end = source + rows * length;
  if (std::any_of(source, end, [&](int64_t id) { return id < 0 || id >= input.vocabulary; })) {
    throw invalid_argument("the source ids must be from 0 to " + std::to_string(input.vocabulary - 1) +
                           "; one of them is not");
  }
  for (const int64_t* row = source; row < end || (length == 0 && rows > 0); row += length) {
    const int64_t fill = input.special.fill(), *padding = std::find(row, row + length, fill);
    if (padding == row || std::any_of(padding, row + length, [=](int64_t id) { return id != fill; })) {
      throw invalid_argument("each row of source ids must be one or more tokens, then padding (" +
                             std::to_string(fill) + ") only");
    }
  }
  if (rows > 0 && input.longest && static_cast<int64_t>(length) > *input.longest) {
    throw invalid_argument("the source has " + std::to_string(length) + " tokens, and this engine takes at most " +
                           std::to_string(*input.longest));
  }
}

}  // namespace

Engine::Engine(const std::string& folder, const xformc_load_options& options) {
  const std::filesystem::path path(folder);
  const auto state = state_of(path / "engine.json");
  const int64_t workers = resolve_workers(options.workers), threads = resolve_threads(options.threads);
  log_ = {options.log, options.log_data};
  process_ = getpid();
  manifest_ = read_manifest(path);
  check_operators((path / "engine.json").string(), manifest_);
  check_files(path, manifest_, options.verify_hashes);
  check_target(folder, manifest_);
  // Where a link leads now, from wherever the process goes: other models are opened later.
  const std::filesystem::path resolved = std::filesystem::canonical(path);
  const auto require_unchanged = [resolved, state, manifest = manifest_] {
    if (state_of(resolved / "engine.json") != state) {
      throw invalid_engine("the engine in this folder has changed since it was loaded", resolved.string(),
                           "load it again with xformc_load");
    }
    check_files(resolved, manifest, false);
  };
  session_ = std::make_unique<Session>(options.onnxruntime == nullptr ? "" : options.onnxruntime,
                                       model_files(resolved, manifest_), threads, workers, manifest_.target == "native",
                                       require_unchanged);
  tokenizer_ = load_tokenizer(path, manifest_, lacking_);
  const bool samples = manifest_.decoding() == Decoding::sample;
  const Edits& edits = samples ? manifest_.sampling.edits : manifest_.search.edits;
  for (const int64_t id : edits.suppress_tokens.value_or(Ids())) suppressed_.push_back({id, {nullptr, 0}});
}

const Vocabulary& Engine::vocabulary(const std::string& input) const {
  const auto found = tokenizer_.find(input);
  if (found != tokenizer_.end()) return *found->second;
  if (const auto lacking = lacking_.find(input); lacking != lacking_.end()) throw unread(lacking->second, manifest_);
  throw invalid_argument("the engine " + manifest_.name + " has no tokenizer for an input '" + input + "'");
}

SearchOptions Engine::search_options(const xformc_search_options* search) const {
  const xformc_search_options given = read_options(search);
  SearchOptions options = resolve(given, manifest_, tokenizer_);
  options.prefixes = encode_prefixes(given, manifest_, tokenizer_);
  options.whole_texts = given.whole_texts;
  if (options.whole_texts) options.max_length_factor = 0, options.max_length_offset = 0;  // they are as long as given
  return options;
}

std::unique_ptr<Task> Engine::translation(const xformc_search_options* search, const Batching& batching) const {
  check_method("translate", "translate");
  const SearchOptions options = search_options(search);
  check_texts(manifest_.inputs);
  return make_search(manifest_, tokenizer_, log_, options, batching, false);
}

std::unique_ptr<Task> Engine::transcription(const xformc_search_options* search, const Batching& batching) const {
  check_method("transcribe", "transcribe");
  if (manifest_.decoding() == Decoding::sample) {
    throw invalid_argument(manifest_.name + " samples its text, and does not search for it", "", "use xformc_sample");
  }
  const SearchOptions options = search_options(search);
  return make_search(manifest_, tokenizer_, log_, options, batching, false);
}

std::unique_ptr<Task> Engine::sampling(const xformc_sample_options* sampling, const Batching& batching) const {
  check_method("sample", "transcribe");
  if (manifest_.decoding() != Decoding::sample) {
    throw invalid_argument(manifest_.name + " searches for its text, and does not sample", "", "use xformc_transcribe");
  }
  const xformc_sample_options given = read_options(sampling);
  const SampleOptions options = resolve(given, manifest_, tokenizer_);
  if (!options.stops.empty()) throw invalid_argument("stop is an option of language models", "", "leave it out");
  return make_sampling(manifest_, tokenizer_, log_, options, resolve_seed(given), batching);
}

std::unique_ptr<Task> Engine::generation(const xformc_sample_options* sampling, const Batching& batching) const {
  check_method("generate", "generate");
  const xformc_sample_options given = read_options(sampling);
  const SampleOptions options = resolve(given, manifest_, tokenizer_);
  if (!options.stops.empty()) require_streams(manifest_);
  check_texts(manifest_.inputs);
  return make_generation(manifest_, tokenizer_, log_, options, resolve_seed(given), batching);
}

std::unique_ptr<Task> Engine::prediction(const Batching& batching) const {
  check_method("predict", "predict");
  return make_prediction(manifest_, tokenizer_, log_, batching);
}

std::unique_ptr<Task> Engine::scoring(const Batching& batching) const {
  const bool searches = manifest_.decoding() == Decoding::search;
  check_method("score", "generate", searches ? ", with the texts as prefixes that are whole_texts" : "");
  check_texts(manifest_.inputs);
  return make_scoring(manifest_, tokenizer_, log_, batching);
}

std::unique_ptr<Task> Engine::aligning(const Batching& batching) const {
  check_method("align", "translate");
  require_alignments(manifest_);
  check_texts(manifest_.inputs);
  return make_aligning(manifest_, tokenizer_, log_, batching);
}

Result Engine::stream_tokens(const xformc_text& prompt, const xformc_sample_options* sampling,
                             const xformc_run_options& run, const TakePiece& take) const {
  const Batching chosen = batching(run);
  const std::unique_ptr<Task> task = generation(sampling, chosen);
  const SampleOptions options = resolve(read_options(sampling), manifest_, tokenizer_);
  const Row row = task->encode(1, &prompt);
  require_streams(manifest_);
  const Model& model = session_->shared_by(chosen.workers, {false, false, true});
  Stopper stopper(session_->runtime().api());
  const Running running(run.cancel, stopper);
  const Input& written = manifest_.written();
  Hypothesis found = xformc::stream_tokens(model, stopper, written, *tokenizer_.at(written.name), row, options,
                                           chosen.tokens_at_once, take);
  return {{std::move(found)}, {}};
}

Batching Engine::batching(const xformc_run_options& run) const {
  if (run.token_scores) require_token_scores(manifest_);
  if (run.alignment) require_alignments(manifest_);
  const bool written = manifest_.decoding() != Decoding::forward;
  return resolve(run, session_->workers(), written ? MAX_BATCH_TOKENS : MAX_BATCH_POSITIONS);
}

void Engine::check_method(const char* called, const std::string& method, const char* how) const {
  check_process();
  const std::string right = engine_task(manifest_.task).method;
  if (right == method) return;
  throw invalid_argument(manifest_.name + " is a " + manifest_.task + " engine; " + called + " needs a " +
                             joined(tasks_with(method), " or ") + " engine",
                         "", "use " + function_of(manifest_.task) + how);
}

std::vector<Result> Engine::all(const Task& task, const Batching& batching, xformc_cancel* cancel,
                                const xformc_text* texts, size_t count, size_t texts_per_item) const {
  task.check_count(count);
  std::vector<Row> rows;
  rows.reserve(count);
  for (size_t i = 0; i < count; ++i) rows.push_back(task.encode(i + 1, texts + i * texts_per_item));
  return all(task, batching, cancel, std::move(rows));
}

std::vector<Result> Engine::all(const Task& task, Batching batching, xformc_cancel* cancel,
                                std::vector<Row> rows) const {
  task.check_count(rows.size());
  batching.window = static_cast<int64_t>(std::min(rows.size() + 1, LARGEST_WINDOW));
  Stopper stopper(session_->runtime().api());
  const Running running(cancel, stopper);
  std::vector<Result> results;
  results.reserve(rows.size());
  size_t next = 0;
  run_stream(
      task, session_->shared_by(batching.workers, task.needed(batching)), stopper, batching,
      [&]() -> std::optional<Row> {
        if (next == rows.size()) return std::nullopt;
        return std::move(rows[next++]);
      },
      [&](Result&& result) { results.push_back(std::move(result)); });
  return results;
}

void Engine::stream(const Task& task, const Batching& batching, xformc_cancel* cancel, size_t texts_per_item,
                    const ReadTexts& read, const WriteResult& write) const {
  task.check_count(std::nullopt);
  Stopper stopper(session_->runtime().api());
  const Running running(cancel, stopper);
  std::vector<xformc_text> texts(texts_per_item);
  size_t line = 0;
  run_stream(
      task, session_->shared_by(batching.workers, task.needed(batching)), stopper, batching,
      [&]() -> std::optional<Row> {
        if (!read(texts.data())) return std::nullopt;
        return task.encode(++line, texts.data());
      },
      write);
}

std::vector<Result> Engine::search(const int64_t* source, size_t rows, size_t length,
                                   const xformc_search_options* search, const xformc_run_options& run) const {
  check_method("search", "translate");
  const SearchOptions options = search_options(search);
  const Input& input = manifest_.input("source");
  check_source(source, rows, length, input);
  if (rows == 0) return {};
  const Batching chosen = batching(run);
  if (chosen.alignment) throw invalid_argument("alignments are those of texts", "", "use xformc_translate");
  const Tokenizer none;
  const std::unique_ptr<Task> task = make_search(manifest_, none, log_, options, chosen, true);
  task->check_count(rows);
  std::vector<Row> examples(rows);
  Rows pointers;
  for (size_t i = 0; i < rows; ++i) {
    const int64_t* first = source + i * length;
    Ids ids(first, std::find(first, first + length, input.special.fill()));
    const auto count = static_cast<int64_t>(ids.size());
    examples[i].fields.push_back({std::move(ids), {}, count});
    examples[i].seed = static_cast<int64_t>(i);
    pointers.push_back(&examples[i]);
  }
  Stopper stopper(session_->runtime().api());
  const Running running(run.cancel, stopper);
  return task->run(session_->shared_by(chosen.workers, task->needed(chosen)), stopper, pointers);
}

bool Engine::is_here() const { return process_ == getpid(); }

void Engine::check_process() const {
  if (is_here()) return;
  throw invalid_argument("this engine was loaded before the process was forked, and its threads are not here", "",
                         "load engines after a fork, in the process that uses them");
}

void Engine::check_texts() const { check_texts(manifest_.given); }

void Engine::check_texts(const std::vector<Input>& inputs) const {
  std::vector<std::string> others;
  bool tokenized = true;
  for (const Input& input : inputs) {
    if (input.rate > 0) continue;  // a file
    if (input.kind != Kind::tokens) others.push_back(input.name);
    tokenized = tokenized && !input.tokenizer.empty();
    if (const auto lacking = lacking_.find(input.name); lacking != lacking_.end()) {
      throw unread(lacking->second, manifest_);
    }
  }
  if (!others.empty()) {
    throw invalid_argument("the engine " + manifest_.name + " takes more than text: it needs " + joined(others), "",
                           "give it arrays: " + function_of(manifest_.task) + "_arrays");
  }
  if (!tokenized) {
    throw invalid_argument("the engine " + manifest_.name + " has no tokenizer", "",
                           "build it from a run, or with tokenizers: xformc.build(..., tokenizers={input: file})");
  }
}

}  // namespace xformc

void xformc_cancel::now() {
  const std::lock_guard<std::mutex> lock(mutex_);
  cancelled_ = true;
  for (xformc::Stopper* stopper : running_) stopper->stop();
}

void xformc_cancel::add(xformc::Stopper& stopper) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (cancelled_) throw xformc::cancelled();
  running_.push_back(&stopper);
}

void xformc_cancel::remove(xformc::Stopper& stopper) {
  const std::lock_guard<std::mutex> lock(mutex_);
  running_.erase(std::find(running_.begin(), running_.end(), &stopper));
}
