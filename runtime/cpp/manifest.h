// engine.json: what an engine is, what it needs, and the size and hash of each of its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stops.h"
#include "tasks.h"

namespace xformc {

constexpr int64_t MAX_SIZE = int64_t{1} << 31;  // of an axis or a vocabulary

// The ids of the special tokens of a vocabulary; of those that it lacks, none.
struct SpecialTokens {
  std::optional<int64_t> pad = 0, unknown = 1, begin = 2;
  std::vector<int64_t> end = {3};  // what ends a text; the first ends the texts that a model is given
  bool ends = true;                // whether these have an end token

  int64_t absent() const { return pad.value_or(-1); }  // where a prompt or a prefix has no token
  int64_t fill() const { return pad.value_or(0); }     // after a text, where values do not count
  int64_t last() const { return end[0]; }
  std::vector<int64_t> after() const { return ends ? std::vector<int64_t>{last()} : std::vector<int64_t>{}; }
  std::vector<int64_t> begun() const { return begin ? std::vector<int64_t>{*begin} : std::vector<int64_t>{}; }
  int64_t choices() const { return 1 + static_cast<int64_t>(end.size()); }  // of a step, for each hypothesis
  bool has(int64_t id) const;                                               // whether it is a special token
  bool usual() const;  // whether the ids are those of the vocabularies that xformc trains
  bool operator==(const SpecialTokens& other) const {
    return pad == other.pad && unknown == other.unknown && begin == other.begin && end == other.end &&
           ends == other.ends;
  }
};

// The models of the probabilities of given texts, of their alignments, and of streams of tokens.
constexpr const char *SCORES = "scores.onnx", *ALIGNMENTS = "alignments.onnx";
constexpr const char *PROMPT = "prompt.onnx", *CONTINUE = "continue.onnx";

constexpr double MAX_PENALTY = 100, MAX_LENGTH_PENALTY = 10, MAX_BIAS = 0.999, MAX_FACTOR = 100, MAX_TEMPERATURE = 100,
                 MAX_PATIENCE = 100;
constexpr int64_t MAX_GROUPS = 1024;
constexpr double MIN_REPETITION = 0.01;
constexpr size_t MAX_SUPPRESSED = 100'000;
constexpr int64_t MAX_OFFSET = 100'000, MAX_NEW_TOKENS = 100'000, MAX_TOP_K = 1'000'000;

// The options that edit the scores of tokens; none: the engine has no such input.
struct Edits {
  std::optional<std::vector<int64_t>> suppress_tokens = {};
  std::optional<int64_t> no_repeat_ngram_size = {};
  std::optional<double> repetition_penalty = {}, presence_penalty = {}, frequency_penalty = {};
};

// Options of the search and of sampling, complete and checked.
struct SearchOptions {
  int64_t beam_size = 1, n_best = 1;
  double length_penalty = 0, max_length_factor = 0;
  int64_t max_length_offset = 0;
  std::vector<std::optional<double>> controls;      // in the order of `controls()`; none: the engine has no such input
  std::vector<std::vector<int64_t>> prefixes = {};  // tokens that texts begin with: of each, or one for all
  bool whole_texts = false;                         // the prefixes are whole texts
  Edits edits = {};
};

struct SampleOptions {
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  int64_t max_new_tokens = 1;
  Edits edits = {};
  Stops stops = {};  // of a language model, and of a call alone
};

enum class Kind { tokens, vectors, values, edges };

struct Input {
  std::string name;
  Kind kind;
  int64_t vocabulary;                                 // 0 unless the kind is tokens
  std::vector<std::pair<std::string, int64_t>> axes;  // the sizes of vectors (one) and values
  std::string of;                                     // the input whose positions it has, or joins (edges); "": its own
  std::optional<int64_t> longest;                     // the maximum number of positions
  std::string tokenizer;                              // its file; "" for an input that takes ids only
  int64_t rate = 0;                                   // samples in a second, of vectors that are samples of a sound
  SpecialTokens special = {};                         // of tokens

  const char* kind_name() const;
  bool has_positions() const { return of.empty() && (kind == Kind::tokens || kind == Kind::vectors); }  // of its own
};

enum class ResultKind { text, ctc, labels, numbers, vectors };

// A result of the engine, as engine.json records it.
struct DeclaredResult {
  std::string name;
  ResultKind kind;
  std::vector<int64_t> axes;         // the sizes of its axes after batch and positions; of text, its vocabulary
  std::string positions;             // the input whose positions each have a result; "": the whole example has one
  std::vector<std::string> labels;   // of labels, by id
  bool words;                        // of positions: each word is one, otherwise each token
  bool several;                      // labels: any number of them may hold at once
  std::vector<std::string> outputs;  // the outputs of the model that make it
  std::string tokenizer = "";        // of CTC: its file; "" for one of ids only
  int64_t beam_size = 1;             // of CTC: its hypotheses
  std::string of = "";               // the written text that it depends on; "": it does not

  const char* kind_name() const;
  int64_t width() const { return axes.empty() ? 1 : axes.back(); }  // the size of the last axis
};

struct FileRecord {
  int64_t bytes;
  std::string sha256;
};

struct Manifest {
  std::string name, task, target, precision;
  std::vector<Input> inputs;
  std::vector<Input> given;                               // the inputs that a call gives: all but the written text
  std::vector<DeclaredResult> results;                    // the written text first
  SearchOptions search;                                   // engines that search only
  SampleOptions sampling;                                 // engines that sample only
  std::vector<std::pair<std::string, FileRecord>> files;  // every file but engine.json
  std::optional<int64_t> operators;                       // the version of xformc's operators in the model
  bool takes_prefix = false;                              // whether its search takes tokens that texts begin with

  Decoding decoding() const { return engine_task(task).decoding; }
  const Input& input(const std::string& name) const;  // which there must be
  const Input& written() const;                       // the text that the engine writes; only for engines that do
  const DeclaredResult* labels() const;               // the first result that is labels, or null
  bool labels_words() const;                          // whether words have results, so that texts are encoded by word
  bool has_results_of_text() const;                   // whether a result depends on the text that the engine writes
  bool has_file(const std::string& name) const;
  bool aligns() const;   // whether it gives alignments of translations
  bool streams() const;  // whether it gives tokens as they are sampled
};

// Reads and checks engine.json. Throws Failure.
Manifest read_manifest(const std::filesystem::path& folder);

// Checks that each file lies inside the folder with its recorded size and, with `hashes`, its sha256. Throws Failure.
void check_files(const std::filesystem::path& folder, const Manifest& manifest, bool hashes);

}  // namespace xformc
