// xformc.hpp: runs xformc's engines from C++17, text in and text out, over the C API in xformc.h. See docs/cpp.md.
//
//   xformc::Engine engine("demo/engine");
//   for (const auto& hypotheses : engine.translate({"forty-two", "seven"})) std::cout << hypotheses[0].text << '\n';
//
// Functions throw xformc::Error. An engine may be used by any number of threads. Results are values of their own.
#ifndef XFORMC_HPP
#define XFORMC_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "xformc.h"

namespace xformc {
inline namespace api {  // symbols of its own: the library, which may be linked statically, has classes of these names

// What is wrong; what() has all of it.
class Error : public std::runtime_error {
 public:
  Error(xformc_status status, const std::string& message, const std::string& place = "", const std::string& hint = "")
      : std::runtime_error((place.empty() ? "" : place + ": ") + message + (hint.empty() ? "" : "\nhint: " + hint)),
        status_(status), parts_(std::make_shared<const Parts>(Parts{message, place, hint})) {}

  xformc_status status() const noexcept { return status_; }
  const std::string& message() const noexcept { return parts_->message; }
  const std::string& place() const noexcept { return parts_->place; }  // a file or "line N" of the texts, or ""
  const std::string& hint() const noexcept { return parts_->hint; }    // how to fix it, or ""

 private:
  struct Parts {
    std::string message, place, hint;
  };
  xformc_status status_;
  std::shared_ptr<const Parts> parts_;  // copying an exception must not throw
};

inline const char* version() noexcept { return xformc_version(); }

// ---- Options: what is not set has its default. In C++20: engine.translate(texts, {.beam_size = 2}). -----------------

struct LoadOptions {
  std::optional<int64_t> threads = {};  // cores to use; all that the process may use
  std::optional<int64_t> workers = {};  // batches run at the same time, which share the cores; 1
  bool verify_hashes = true;            // compare the sha256 of every file, otherwise only their sizes
  std::string onnxruntime = {};         // the file of ONNX Runtime's library; "": it is searched for (docs/cpp.md)
  // Gets log messages, from any thread. It must not call the engine; what it throws is dropped.
  std::function<void(xformc_log_level, const char* message)> log = {};
};

// A token of the vocabulary of the text that an engine writes: its id, or its piece, such as "<unk>". U+2581 in a piece is
// a space.
struct Token {
  template <typename Id, std::enable_if_t<std::is_integral_v<Id>, int> = 0>
  Token(Id number) : id(static_cast<int64_t>(number)) {}  // NOLINT: an id is a token
  Token(std::string text) : piece(std::move(text)) {}     // NOLINT: so is a piece
  Token(const char* text) : piece(text) {}                // NOLINT

  int64_t id = 0;
  std::optional<std::string> piece = {};
};

struct SearchOptions {
  std::optional<int64_t> beam_size = {};          // hypotheses kept for each sentence; 1 is greedy search
  std::optional<int64_t> n_best = {};             // hypotheses returned for each sentence, at most beam_size
  std::optional<double> length_penalty = {};      // alpha in log probability / ((5 + length) / 6)^alpha
  std::optional<double> max_length_factor = {};   // at most floor(max_length_factor * source tokens)
  std::optional<int64_t> max_length_offset = {};  // + max_length_offset tokens, end tokens counted on both sides
  std::optional<int64_t> min_length = {};         // a text does not end before it has so many tokens
  std::vector<std::string> prefixes = {};         // what each text begins with, or one for all, as for streams
  bool whole_texts = false;                       // the prefixes are whole texts, whose scores are the result
  std::string length_penalty_kind = {};           // gnmt or average; "": the engine's
  std::string stop_rule = {};                     // first, best, complete or shrink (docs/search.md); "": the engine's
  std::optional<double> patience = {};            // the rule first waits for patience * beam_size hypotheses
  std::string preset = {};                        // replaces the engine's length penalty and stop rule; "": it does not
  // Edits of the scores of tokens (docs/search.md).
  std::optional<std::vector<Token>> suppress_tokens = {};  // tokens that are never written
  std::optional<int64_t> no_repeat_ngram_size = {};  // no sequence of so many tokens occurs twice in a text; 0: any may
  std::optional<double> repetition_penalty = {};     // above 1: makes tokens that the text already has less likely
  std::optional<double> presence_penalty = {};       // is subtracted for each token that the text already has
  std::optional<double> frequency_penalty = {};      // is subtracted for each time that the text has the token
  // Groups of diverse beams: the beam is divided into beam_groups, which search one after the other.
  std::optional<int64_t> beam_groups = {};
  std::optional<double> diversity_penalty = {};  // is subtracted for each hypothesis of earlier groups with the token
  std::optional<double> coverage_penalty = {};   // weight of the coverage of the source in the score of a text
  std::optional<double> prefix_bias = {};        // the share of the probability for prefixes that are not forced
};

struct SampleOptions {
  std::optional<int64_t> seed = {};            // of the first prompt; the next has seed + 1, and so on; 0
  std::optional<double> temperature = {};      // divides the logits; 0 always takes the most likely token
  std::optional<int64_t> top_k = {};           // sample from the k most likely tokens; 0: no limit
  std::optional<double> top_p = {};            // sample from the fewest tokens whose probabilities sum to top_p
  std::optional<int64_t> max_new_tokens = {};  // maximum tokens of a continuation, the end token included
  // Edits of the scores of tokens, as in SearchOptions.
  std::optional<std::vector<Token>> suppress_tokens = {};
  std::optional<int64_t> no_repeat_ngram_size = {};
  std::optional<double> repetition_penalty = {};
  std::optional<double> presence_penalty = {};
  std::optional<double> frequency_penalty = {};
  std::vector<std::string> stop = {};  // a language model's continuation ends before the first of these that it has
};

// Ends calls early, from any thread: they throw an Error with XFORMC_CANCELLED. It outlives the calls that use it.
class Cancel {
 public:
  Cancel() : handle_(xformc_cancel_new()) {
    if (handle_ == nullptr) throw std::bad_alloc();
  }
  void now() noexcept { xformc_cancel_now(handle_.get()); }
  xformc_cancel* get() const noexcept { return handle_.get(); }

 private:
  struct Free {
    void operator()(xformc_cancel* cancel) const noexcept { xformc_cancel_free(cancel); }
  };
  std::unique_ptr<xformc_cancel, Free> handle_;
};

struct RunOptions {
  std::optional<int64_t> workers = {};           // batches run at the same time; as the engine was loaded
  std::optional<int64_t> max_batch_tokens = {};  // capacity of a batch; 16,384, or 2,048 positions for predictions
  std::optional<int64_t> window = {};            // streams: texts to read ahead; 1,024 for each worker
  bool truncate = false;                         // cut texts that are too long, otherwise they are errors
  const Cancel* cancel = nullptr;
  bool token_scores = false;                   // also score each token of the texts written
  std::optional<int64_t> tokens_at_once = {};  // streams of tokens: those that one call of the model samples; 1
  bool alignment = false;                      // also link the words of translations to those of their sources
};

// ---- Results --------------------------------------------------------------------------------------------------------

struct Value;

// The links of a translation with its source. Words are what stands between spaces, and end tokens are among the tokens;
// all are counted from 0.
struct Alignment {
  std::vector<std::pair<int64_t, int64_t>> words;   // of the source and of the translation, in order
  std::vector<std::pair<int64_t, int64_t>> tokens;  // the same of tokens, in the order of the translation's
  std::vector<float> attention;                     // [targets, sources]: what each token looked at when it was written
  size_t targets = 0, sources = 0;                  // the numbers of tokens

  std::string pharaoh() const {  // the links of words, such as "0-0 1-2"
    std::string text;
    for (const auto& [source, target] : words) {
      text += (text.empty() ? "" : " ") + std::to_string(source) + "-" + std::to_string(target);
    }
    return text;
  }
};

struct Hypothesis {
  std::string text;                         // empty for a search on ids
  float score;                              // higher is better
  std::vector<int64_t> tokens;              // with the end token if there was one
  std::vector<Value> results;               // of the engine's further results, those that depend on this text
  std::vector<float> token_scores = {};     // the log probability of each token, if it was asked for
  std::optional<Alignment> alignment = {};  // of a translation, if it was asked for
};

// A result that the engine gives for an example.
struct Result {
  std::string name;
  std::string kind;                 // "text", "ctc", "labels", "numbers" or "vectors"
  std::string positions;            // the input whose positions each have a result; "": the whole example has one
  std::vector<std::string> labels;  // the names of labels, by id
  bool several;                     // labels: any number of them may hold at once, otherwise one
  bool has_tokenizer = false;       // ctc: its hypotheses have texts, otherwise tokens only
};

// The value of a result for one example.
struct Value {
  std::string name, kind;           // of the result
  std::vector<float> numbers;       // numbers, vectors, or the probabilities of labels, in row-major order
  std::vector<int64_t> shape;       // [positions, ...] or [...]; of labels [positions or 1, Result::labels.size()]
  std::vector<std::string> labels;  // the most likely one of each row; of several at once those of the whole with a
                                    // probability of 0.5 or more, or for each position those, joined by commas
  std::vector<Hypothesis> hypotheses = {};  // of CTC, best first; texts are empty without a tokenizer
};

// The labels and probabilities are those of the first result that is labels; without one they are empty.
struct Prediction {
  std::vector<std::string> labels;   // one for the whole; for tagging, one for each position
  std::vector<float> probabilities;  // [positions or 1, Engine::labels().size()], row by row
  std::vector<Value> results = {};   // all results, in the order of Engine::results()
};

struct Transcription {
  std::vector<Hypothesis> hypotheses;  // best first
  std::vector<Value> results;          // the engine's further results; of those that depend on the text, the best one's
};

struct Input {
  std::string name;
  std::string kind;    // "tokens", "vectors", "values" or "edges"
  int64_t vocabulary;  // number of token ids; 0 unless the kind is tokens
  int64_t longest;     // maximum positions; 0: no limit
  bool has_tokenizer;
  int64_t rate = 0;  // of a given input that is a sound: samples in a second; its text is the path of a .wav file
};

// An input as an array in row-major order; the data must live until the call ends.
struct Array {
  Array(std::string input, const float* values, std::vector<int64_t> sizes)
      : Array(std::move(input), XFORMC_FLOAT32, values, std::move(sizes)) {}
  Array(std::string input, const int64_t* values, std::vector<int64_t> sizes)
      : Array(std::move(input), XFORMC_INT64, values, std::move(sizes)) {}
  Array(std::string input, const bool* values, std::vector<int64_t> sizes)
      : Array(std::move(input), XFORMC_BOOL, values, std::move(sizes)) {}

  std::string name;  // an input, or NAME_lengths for the lengths of an input of vectors
  xformc_element element;
  const void* data;
  std::vector<int64_t> shape;

 private:
  Array(std::string input, xformc_element kind, const void* values, std::vector<int64_t> sizes)
      : name(std::move(input)), element(kind), data(values), shape(std::move(sizes)) {}
};

namespace detail {

// Calls a function of the C API, and throws its error.
template <typename Function, typename... Arguments>
void call(Function function, Arguments... arguments) {
  xformc_error* error = nullptr;
  const xformc_status status = function(arguments..., &error);
  if (status == XFORMC_OK) return;
  const std::unique_ptr<xformc_error, void (*)(xformc_error*)> owned(error, xformc_error_free);
  throw Error(status, xformc_error_message(error), xformc_error_place(error), xformc_error_hint(error));
}

// The C API has values for "not set", which must not be given as values.
template <typename Number>
void set(const char* name, Number& option, const std::optional<Number>& value) {
  if (!value) return;
  option = *value;
  bool is_unset = false;
  if constexpr (std::is_floating_point_v<Number>) {
    is_unset = std::isnan(option);
  } else {
    is_unset = option == XFORMC_DEFAULT;
  }
  if (is_unset)
    throw Error(XFORMC_INVALID_ARGUMENT, std::string(name) + " must be a number, not " +
                                             (std::is_floating_point_v<Number> ? "nan" : "INT64_MIN"));
}

struct Search : xformc_search_options {
  std::vector<xformc_text> texts;  // the prefixes
  std::vector<xformc_token> tokens;
};

struct Sampling : xformc_sample_options {
  std::vector<xformc_text> stops;
  std::vector<xformc_token> tokens;
};

// Sets the edits of scores; `options` keeps the tokens, whose pieces are the caller's.
template <typename Given, typename Options>
void set_edits(const Given& given, Options& options) {
  for (size_t i = 0; given.suppress_tokens && i < given.suppress_tokens->size(); ++i) {
    const Token& one = (*given.suppress_tokens)[i];
    options.tokens.push_back({one.id, one.piece ? xformc_text{one.piece->data(), one.piece->size()} : xformc_text{}});
  }
  options.suppress_count = options.tokens.size();
  if (given.suppress_tokens) options.tokens.push_back({});  // an empty list has an address, too
  options.suppress_tokens = given.suppress_tokens ? options.tokens.data() : nullptr;
  set("no_repeat_ngram_size", options.no_repeat_ngram_size, given.no_repeat_ngram_size);
  set("repetition_penalty", options.repetition_penalty, given.repetition_penalty);
  set("presence_penalty", options.presence_penalty, given.presence_penalty);
  set("frequency_penalty", options.frequency_penalty, given.frequency_penalty);
}

// The texts of the options must live as long.
inline Search c_options(const SearchOptions& given) {
  Search options;
  xformc_search_options_init(&options, sizeof(xformc_search_options));
  for (const std::string& text : given.prefixes) options.texts.push_back({text.data(), text.size()});
  options.prefixes = options.texts.empty() ? nullptr : options.texts.data();
  options.prefix_count = options.texts.size();
  options.whole_texts = given.whole_texts;
  set("beam_size", options.beam_size, given.beam_size);
  set("n_best", options.n_best, given.n_best);
  set("length_penalty", options.length_penalty, given.length_penalty);
  set("max_length_factor", options.max_length_factor, given.max_length_factor);
  set("max_length_offset", options.max_length_offset, given.max_length_offset);
  set("min_length", options.min_length, given.min_length);
  set("patience", options.patience, given.patience);
  set("beam_groups", options.beam_groups, given.beam_groups);
  set("diversity_penalty", options.diversity_penalty, given.diversity_penalty);
  set("coverage_penalty", options.coverage_penalty, given.coverage_penalty);
  set("prefix_bias", options.prefix_bias, given.prefix_bias);
  const auto word = [](const std::string& text) { return text.empty() ? nullptr : text.c_str(); };
  options.length_penalty_kind = word(given.length_penalty_kind);
  options.stop_rule = word(given.stop_rule);
  options.preset = word(given.preset);
  set_edits(given, options);
  return options;
}

inline Sampling c_options(const SampleOptions& given) {
  Sampling options;
  xformc_sample_options_init(&options, sizeof(xformc_sample_options));
  set("seed", options.seed, given.seed);
  set("temperature", options.temperature, given.temperature);
  set("top_k", options.top_k, given.top_k);
  set("top_p", options.top_p, given.top_p);
  set("max_new_tokens", options.max_new_tokens, given.max_new_tokens);
  for (const std::string& text : given.stop) options.stops.push_back({text.data(), text.size()});
  options.stop = options.stops.data();
  options.stop_count = options.stops.size();
  set_edits(given, options);
  return options;
}

inline xformc_run_options c_options(const RunOptions& given) {
  xformc_run_options options;
  xformc_run_options_init(&options, sizeof options);
  set("workers", options.workers, given.workers);
  set("max_batch_tokens", options.max_batch_tokens, given.max_batch_tokens);
  set("window", options.window, given.window);
  options.truncate = given.truncate;
  options.cancel = given.cancel == nullptr ? nullptr : given.cancel->get();
  options.token_scores = given.token_scores;
  set("tokens_at_once", options.tokens_at_once, given.tokens_at_once);
  options.alignment = given.alignment;
  return options;
}

inline std::optional<Alignment> links(const xformc_results* results, size_t index, size_t rank) {
  xformc_links found{};
  found.size = sizeof found;
  if (!xformc_results_links(results, index, rank, &found)) return std::nullopt;
  Alignment alignment{{}, {}, {}, found.target_count, found.source_count};
  for (size_t i = 0; i < found.word_count; ++i) {
    alignment.words.emplace_back(found.words[2 * i], found.words[2 * i + 1]);
  }
  for (size_t i = 0; i < found.token_count; ++i) {
    alignment.tokens.emplace_back(found.tokens[2 * i], found.tokens[2 * i + 1]);
  }
  alignment.attention.assign(found.attention, found.attention + found.target_count * found.source_count);
  return alignment;
}

inline Hypothesis hypothesis(const xformc_results* results, size_t index, size_t rank) {
  xformc_hypothesis one;
  if (!xformc_results_hypothesis(results, index, rank, &one)) throw Error(XFORMC_INTERNAL_ERROR, "no hypothesis");
  const float* scores = xformc_results_token_scores(results, index, rank);
  const size_t scored = scores == nullptr ? 0 : one.token_count;
  return {{one.text.data, one.text.size},
          one.score,
          {one.tokens, one.tokens + one.token_count},
          {},
          {scores, scores + scored},
          links(results, index, rank)};
}

inline std::vector<Hypothesis> hypotheses(const xformc_results* results, size_t index) {
  std::vector<Hypothesis> found;
  const size_t count = xformc_results_hypothesis_count(results, index);
  for (size_t rank = 0; rank < count; ++rank) found.push_back(hypothesis(results, index, rank));
  return found;
}

inline std::vector<Result> results(const xformc_engine* engine) {
  std::vector<Result> found(xformc_engine_result_count(engine));
  for (size_t i = 0; i < found.size(); ++i) {
    xformc_result one{};
    one.size = sizeof one;
    if (!xformc_engine_result(engine, i, &one))
      throw Error(XFORMC_INTERNAL_ERROR, "libxformc is older than xformc.hpp");
    found[i] = {one.name, one.kind, one.positions == nullptr ? "" : one.positions, {}, one.several, one.has_tokenizer};
    for (size_t label = 0; label < one.label_count; ++label) {
      found[i].labels.emplace_back(xformc_engine_result_label(engine, i, label));
    }
  }
  return found;
}

inline std::vector<std::string> labels(const Result& result, const xformc_value& value) {
  std::vector<std::string> found;
  const bool joins = result.several && !result.positions.empty();
  size_t next = 0;
  for (int64_t row = 0; row < value.shape[0]; ++row) {
    if (joins) found.emplace_back();
    for (size_t i = 0; i < value.labels_per_row[row]; ++i) {
      const std::string& label = result.labels[static_cast<size_t>(value.labels[next++])];
      if (joins) {
        found.back() += (i > 0 ? "," : "") + label;
      } else {
        found.push_back(label);
      }
    }
  }
  return found;
}

inline Value transcript(const Result& described, const xformc_results* results, size_t index, size_t result) {
  Value value{described.name, described.kind, {}, {}, {}, {}};
  xformc_hypothesis one;
  for (size_t rank = 0; xformc_results_transcript(results, index, result, rank, &one); ++rank) {
    value.hypotheses.push_back(
        {{one.text.data, one.text.size}, one.score, {one.tokens, one.tokens + one.token_count}, {}});
  }
  return value;
}

inline Value value(const Result& described, const xformc_value& one) {
  Value found{described.name, described.kind, {}, {one.shape, one.shape + one.rank}, {}, {}};
  size_t count = 1;
  for (const int64_t size : found.shape) count *= static_cast<size_t>(size);
  if (count > 0) found.numbers.assign(one.numbers, one.numbers + count);
  if (found.kind == "labels") found.labels = labels(described, one);
  return found;
}

// The values of one example: all results that are no text.
inline std::vector<Value> values(const std::vector<Result>& described, const xformc_results* results, size_t index) {
  std::vector<Value> found;
  for (size_t i = 0; i < described.size(); ++i) {
    xformc_value one{};
    one.size = sizeof one;
    if (described[i].kind == "ctc") found.push_back(transcript(described[i], results, index, i));
    if (xformc_results_value(results, index, i, &one)) found.push_back(value(described[i], one));
  }
  return found;
}

inline Prediction prediction(const std::vector<Result>& described, const xformc_results* results, size_t index) {
  Prediction found{{}, {}, values(described, results, index)};
  for (const Value& value : found.results) {
    if (value.kind != "labels") continue;
    found.labels = value.labels;
    found.probabilities = value.numbers;
    break;
  }
  return found;
}

inline Transcription transcription(const std::vector<Result>& described, const xformc_results* results, size_t index) {
  Transcription found{hypotheses(results, index), values(described, results, index)};
  for (size_t rank = 0; rank < found.hypotheses.size(); ++rank) {
    for (size_t i = 0; i < described.size(); ++i) {
      xformc_value one{};
      one.size = sizeof one;
      if (!xformc_results_text_value(results, index, rank, i, &one)) continue;
      found.hypotheses[rank].results.push_back(value(described[i], one));
    }
  }
  return found;
}

// The callables of a stream behind the callbacks of the C API, through which no exception may pass.
template <typename Read, typename Write>
struct Stream {
  Read& read;    // bool(xformc_text*)
  Write& write;  // void(size_t, const xformc_results*)
  std::exception_ptr thrown = nullptr;

  static int next(void* data, xformc_text* texts) noexcept {
    auto& self = *static_cast<Stream*>(data);
    return self.guarded([&] { return self.read(texts) ? 1 : 0; });
  }

  static int give(void* data, size_t index, const xformc_results* result) noexcept {
    auto& self = *static_cast<Stream*>(data);
    return self.guarded([&] {
      self.write(index, result);
      return 0;
    });
  }

 private:
  template <typename Body>
  int guarded(const Body& body) noexcept {
    try {
      return body();
    } catch (...) {
      thrown = std::current_exception();
      return -1;
    }
  }
};

// The callable of a stream of tokens behind its callback, and what was sampled when it ended the call.
template <typename Take>
struct Pieces {
  const Take& take;  // void or bool(std::string_view)
  std::optional<Hypothesis> so_far = {};
  std::exception_ptr thrown = nullptr;

  static int give(void* data, xformc_text piece, const xformc_results* found) noexcept {
    auto& self = *static_cast<Pieces*>(data);
    try {
      const std::string_view text(piece.data, piece.size);
      if constexpr (std::is_void_v<std::invoke_result_t<const Take&, std::string_view>>) {
        self.take(text);
      } else if (!self.take(text)) {
        self.so_far = hypothesis(found, 0, 0);
        return 1;
      }
      return 0;
    } catch (...) {
      self.thrown = std::current_exception();
      return 1;
    }
  }
};

// Reads one text for an item.
inline auto one_text(const std::function<bool(std::string&)>& read) {
  return [&read, text = std::string()](xformc_text* found) mutable {
    if (!read(text)) return false;
    *found = {text.data(), text.size()};
    return true;
  };
}

// Reads a text for each input for an item.
inline auto several_texts(const std::function<bool(std::vector<std::string>&)>& read, size_t count) {
  return [&read, count, texts = std::vector<std::string>(count)](xformc_text* found) mutable {
    if (!read(texts)) return false;
    if (texts.size() != count) throw Error(XFORMC_INVALID_ARGUMENT, "read must give a text for each input");
    for (size_t i = 0; i < count; ++i) found[i] = {texts[i].data(), texts[i].size()};
    return true;
  };
}

template <typename Make>
auto each(const xformc_results* results, const Make& make) {
  std::vector<decltype(make(size_t{}))> found;
  const size_t count = xformc_results_count(results);
  for (size_t index = 0; index < count; ++index) found.push_back(make(index));
  return found;
}

template <typename Text>
constexpr bool is_text = std::is_convertible_v<const Text&, std::string_view>;

}  // namespace detail

// Many texts: a list such as {"one", "two"}, or a range of strings, which must live until the call ends.
class Texts {
 public:
  Texts(std::initializer_list<std::string_view> texts) { add(texts); }
  template <typename Range, std::enable_if_t<!detail::is_text<Range>, int> = 0>
  Texts(const Range& texts) {
    add(texts);
  }

  const xformc_text* data() const noexcept { return texts_.data(); }
  size_t size() const noexcept { return texts_.size(); }

 private:
  template <typename Range>
  void add(const Range& texts) {
    for (const std::string_view text : texts) texts_.push_back({text.data(), text.size()});
  }
  std::vector<xformc_text> texts_;
};

// ---- The engine -----------------------------------------------------------------------------------------------------

// A loaded engine. It keeps no state between calls; free it when no call is running.
class Engine {
 public:
  explicit Engine(const std::string& folder, const LoadOptions& given = {})
      : log_(given.log ? std::make_unique<const Log>(given.log) : nullptr) {
    xformc_load_options options;
    xformc_load_options_init(&options, sizeof options);
    detail::set("threads", options.threads, given.threads);
    detail::set("workers", options.workers, given.workers);
    options.verify_hashes = given.verify_hashes;
    options.onnxruntime = given.onnxruntime.empty() ? nullptr : given.onnxruntime.c_str();
    options.log = log_ == nullptr ? nullptr : write_log;
    options.log_data = const_cast<Log*>(log_.get());
    xformc_engine* engine = nullptr;
    detail::call(xformc_load, folder.c_str(), &options, &engine);
    handle_.reset(engine);
    results_ = detail::results(engine);
  }

  // Translations of each text, best first. An empty text has one hypothesis, "".
  std::vector<std::vector<Hypothesis>> translate(const Texts& texts, const SearchOptions& search = {},
                                                 const RunOptions& run = {}) const {
    const auto options = detail::c_options(search);
    return each_hypotheses(call(run, xformc_translate, texts.data(), texts.size(), &options));
  }
  template <typename Text, std::enable_if_t<detail::is_text<Text>, int> = 0>
  std::vector<Hypothesis> translate(const Text& text, const SearchOptions& search = {},
                                    const RunOptions& run = {}) const {
    return std::move(translate(Texts{text}, search, run)[0]);
  }

  // Searches on token ids; each source ends with the end token (3).
  std::vector<std::vector<Hypothesis>> search(const std::vector<std::vector<int64_t>>& sources,
                                              const SearchOptions& search = {}, const RunOptions& run = {}) const {
    size_t length = 0;
    for (const auto& source : sources) length = std::max(length, source.size());
    std::vector<int64_t> padded(sources.size() * length);
    for (size_t i = 0; i < sources.size(); ++i) {
      std::copy(sources[i].begin(), sources[i].end(), padded.begin() + static_cast<std::ptrdiff_t>(i * length));
    }
    const auto options = detail::c_options(search);
    return each_hypotheses(call(run, xformc_search, padded.data(), sources.size(), length, &options));
  }

  // Continues prompts. A continuation begins with a space if its first token begins a word.
  std::vector<Hypothesis> generate(const Texts& prompts, const SampleOptions& sampling = {},
                                   const RunOptions& run = {}) const {
    const auto options = detail::c_options(sampling);
    const Results results = call(run, xformc_generate, prompts.data(), prompts.size(), &options);
    return detail::each(results.get(), [&](size_t index) { return detail::hypothesis(results.get(), index, 0); });
  }
  template <typename Text, std::enable_if_t<detail::is_text<Text>, int> = 0>
  Hypothesis generate(const Text& prompt, const SampleOptions& sampling = {}, const RunOptions& run = {}) const {
    return std::move(generate(Texts{prompt}, sampling, run)[0]);
  }

  // Continues a prompt, and gives `take` each piece of the text as it is sampled. The result is that of `generate`; the
  // pieces together are its text. `take` may return false to end the call, whose result is then what was sampled so far.
  // What it throws ends the call and comes out of it.
  template <typename Take>
  Hypothesis stream_tokens(std::string_view prompt, const Take& take, const SampleOptions& sampling = {},
                           const RunOptions& run = {}) const {
    const auto options = detail::c_options(sampling);
    const auto run_options = detail::c_options(run);
    detail::Pieces<Take> pieces{take, {}, {}};
    xformc_results* results = nullptr;
    try {
      const xformc_text given{prompt.data(), prompt.size()};
      detail::call(xformc_stream_tokens, get(), given, pieces.give, static_cast<void*>(&pieces), &options, &run_options,
                   &results);
    } catch (const Error&) {
      if (pieces.thrown) std::rethrow_exception(pieces.thrown);
      if (pieces.so_far) return *pieces.so_far;
      throw;
    }
    const Results owned(results);
    return detail::hypothesis(results, 0, 0);
  }

  // Scores texts by a language model, with the score of each token; with prompts, what follows each of them.
  std::vector<Hypothesis> score(const Texts& texts, const RunOptions& run = {}) const {
    return scored(call(run, xformc_score, nullptr, texts.data(), texts.size()));
  }
  std::vector<Hypothesis> score(const Texts& prompts, const Texts& texts, const RunOptions& run = {}) const {
    if (prompts.size() != texts.size()) {
      throw Error(XFORMC_INVALID_ARGUMENT, "a prompt is needed for each text");
    }
    return scored(call(run, xformc_score, prompts.data(), texts.data(), texts.size()));
  }

  // Links the words of sources and their translations, without a search.
  std::vector<Alignment> align(const Texts& sources, const Texts& targets, const RunOptions& run = {}) const {
    if (sources.size() != targets.size()) {
      throw Error(XFORMC_INVALID_ARGUMENT, "a translation is needed for each source");
    }
    const Results results = call(run, xformc_align, sources.data(), targets.data(), sources.size());
    return detail::each(results.get(), [&](size_t index) { return *detail::links(results.get(), index, 0); });
  }

  // Computes the results of examples. Each has a text for each input of the engine, in order: {"first of 1", "second of
  // 1", ...}.
  std::vector<Prediction> predict(const Texts& texts, const RunOptions& run = {}) const {
    return predictions(call(run, xformc_predict, texts.data(), examples(texts)));
  }
  template <typename Text, std::enable_if_t<detail::is_text<Text>, int> = 0>
  Prediction predict(const Text& text, const RunOptions& run = {}) const {
    return std::move(predict(Texts{text}, run)[0]);
  }

  // The same for examples given as arrays: one for each input, whose first axis is the examples (docs/runtime.md).
  std::vector<Prediction> predict_arrays(const std::vector<Array>& arrays, const RunOptions& run = {}) const {
    const auto given = c_arrays(arrays);
    return predictions(call(run, xformc_predict_arrays, given.data(), given.size()));
  }

  // Writes text for examples, and gives the engine's further results. Each has a text for each given input.
  std::vector<Transcription> transcribe(const Texts& texts, const SearchOptions& search = {},
                                        const RunOptions& run = {}) const {
    const auto options = detail::c_options(search);
    return transcriptions(call(run, xformc_transcribe, texts.data(), examples(texts), &options));
  }
  template <typename Text, std::enable_if_t<detail::is_text<Text>, int> = 0>
  Transcription transcribe(const Text& text, const SearchOptions& search = {}, const RunOptions& run = {}) const {
    return std::move(transcribe(Texts{text}, search, run).at(0));
  }

  // The same for examples given as arrays: one for each given input.
  std::vector<Transcription> transcribe_arrays(const std::vector<Array>& arrays, const SearchOptions& search = {},
                                               const RunOptions& run = {}) const {
    const auto given = c_arrays(arrays);
    const auto options = detail::c_options(search);
    return transcriptions(call(run, xformc_transcribe_arrays, given.data(), given.size(), &options));
  }

  // The same with an engine that samples its text.
  std::vector<Transcription> sample(const Texts& texts, const SampleOptions& sampling = {},
                                    const RunOptions& run = {}) const {
    const auto options = detail::c_options(sampling);
    return transcriptions(call(run, xformc_sample, texts.data(), examples(texts), &options));
  }
  std::vector<Transcription> sample_arrays(const std::vector<Array>& arrays, const SampleOptions& sampling = {},
                                           const RunOptions& run = {}) const {
    const auto given = c_arrays(arrays);
    const auto options = detail::c_options(sampling);
    return transcriptions(call(run, xformc_sample_arrays, given.data(), given.size(), &options));
  }

  // Streams take any number of texts in constant memory and give results in order, in the calling thread. `read` sets
  // its argument to the next text and returns true, or returns false at the end. What a callable throws ends the call
  // and comes out of it, after the results of the texts before.
  void translate_stream(const std::function<bool(std::string& text)>& read,
                        const std::function<void(size_t index, std::vector<Hypothesis> hypotheses)>& write,
                        const SearchOptions& search = {}, const RunOptions& run = {}) const {
    const auto options = detail::c_options(search);
    stream(
        xformc_translate_stream, detail::one_text(read),
        [&](size_t index, const xformc_results* result) { write(index, detail::hypotheses(result, 0)); }, run,
        &options);
  }
  void align_stream(const std::function<bool(std::vector<std::string>& texts)>& read,  // a source and its translation
                    const std::function<void(size_t index, Alignment alignment)>& write,
                    const RunOptions& run = {}) const {
    stream(
        xformc_align_stream, detail::several_texts(read, 2),
        [&](size_t index, const xformc_results* result) { write(index, *detail::links(result, 0, 0)); }, run);
  }
  void generate_stream(const std::function<bool(std::string& prompt)>& read,
                       const std::function<void(size_t index, Hypothesis continuation)>& write,
                       const SampleOptions& sampling = {}, const RunOptions& run = {}) const {
    const auto options = detail::c_options(sampling);
    stream(
        xformc_generate_stream, detail::one_text(read),
        [&](size_t index, const xformc_results* result) { write(index, detail::hypothesis(result, 0, 0)); }, run,
        &options);
  }
  void predict_stream(const std::function<bool(std::vector<std::string>& texts)>& read,  // of a text for each input
                      const std::function<void(size_t index, Prediction prediction)>& write,
                      const RunOptions& run = {}) const {
    stream(
        xformc_predict_stream, detail::several_texts(read, xformc_engine_given_input_count(get())),
        [&](size_t index, const xformc_results* result) { write(index, detail::prediction(results_, result, 0)); },
        run);
  }
  void transcribe_stream(const std::function<bool(std::vector<std::string>& texts)>& read,  // of a text for each input
                         const std::function<void(size_t index, Transcription transcription)>& write,
                         const SearchOptions& search = {}, const RunOptions& run = {}) const {
    const auto options = detail::c_options(search);
    stream(
        xformc_transcribe_stream, detail::several_texts(read, xformc_engine_given_input_count(get())),
        [&](size_t index, const xformc_results* result) { write(index, detail::transcription(results_, result, 0)); },
        run, &options);
  }

  void sample_stream(const std::function<bool(std::vector<std::string>& texts)>& read,  // of a text for each input
                     const std::function<void(size_t index, Transcription transcription)>& write,
                     const SampleOptions& sampling = {}, const RunOptions& run = {}) const {
    const auto options = detail::c_options(sampling);
    stream(
        xformc_sample_stream, detail::several_texts(read, xformc_engine_given_input_count(get())),
        [&](size_t index, const xformc_results* result) { write(index, detail::transcription(results_, result, 0)); },
        run, &options);
  }

  // The token ids of a text of an input, with the end token, and the text of ids without special tokens.
  std::vector<int64_t> encode(const std::string& input, std::string_view text) const {
    std::vector<int64_t> ids(text.size() + 2);
    size_t count = ids.size();
    do {
      ids.resize(count);
      const xformc_text given{text.data(), text.size()};
      detail::call(xformc_encode, get(), input.c_str(), given, ids.data(), ids.size(), &count);
    } while (count > ids.size());
    ids.resize(count);
    return ids;
  }
  std::string decode(const std::string& input, const std::vector<int64_t>& ids) const {
    std::string text;
    size_t size = ids.size() * 8;
    do {
      text.resize(size);
      detail::call(xformc_decode, get(), input.c_str(), ids.data(), ids.size(), text.data(), text.size(), &size);
    } while (size > text.size());
    text.resize(size);
    return text;
  }

  // The piece of a token in the vocabulary of an input.
  std::string piece(const std::string& input, int64_t id) const {
    std::string text;
    size_t size = 32;
    do {
      text.resize(size);
      detail::call(xformc_piece, get(), input.c_str(), id, text.data(), text.size(), &size);
    } while (size > text.size());
    text.resize(size);
    return text;
  }

  std::string name() const { return xformc_engine_name(get()); }
  std::string task() const { return xformc_engine_task(get()); }  // "translation", "language_model", "tagging", ...
  std::string target() const { return xformc_engine_target(get()); }
  std::string precision() const { return xformc_engine_precision(get()); }
  bool aligns() const { return xformc_engine_aligns(get()); }    // whether it links translations to their sources
  bool streams() const { return xformc_engine_streams(get()); }  // whether it has stream_tokens
  std::string onnxruntime() const { return xformc_engine_onnxruntime(get()); }  // the version of ONNX Runtime
  std::vector<Input> inputs() const { return described(xformc_engine_input); }
  std::vector<Input> given_inputs() const {  // those that a call gives: all but the text that the engine writes
    std::vector<Input> found = described(xformc_engine_given_input);
    for (size_t i = 0; i < found.size(); ++i) found[i].rate = xformc_engine_given_input_rate(get(), i);
    return found;
  }
  const std::vector<Result>& results() const noexcept { return results_; }
  std::vector<std::string> labels() const {
    std::vector<std::string> found;
    while (const char* label = xformc_engine_label(get(), found.size())) found.emplace_back(label);
    return found;
  }

  const xformc_engine* get() const noexcept { return handle_.get(); }  // for the C API

 private:
  using Log = std::function<void(xformc_log_level, const char*)>;
  struct Free {
    void operator()(xformc_engine* engine) const noexcept { xformc_engine_free(engine); }
    void operator()(xformc_results* results) const noexcept { xformc_results_free(results); }
  };
  using Results = std::unique_ptr<xformc_results, Free>;

  static void write_log(void* log, xformc_log_level level, const char* message) noexcept {
    try {
      (*static_cast<const Log*>(log))(level, message);
    } catch (...) {
    }
  }

  template <typename Function, typename... Arguments>
  Results call(const RunOptions& run, Function function, Arguments... arguments) const {
    const auto options = detail::c_options(run);
    xformc_results* results = nullptr;
    detail::call(function, get(), arguments..., &options, &results);
    return Results(results);
  }

  template <typename Function>
  std::vector<Input> described(Function input) const {
    std::vector<Input> found;
    xformc_input one;
    while (input(get(), found.size(), &one)) {
      found.push_back({one.name, one.kind, one.vocabulary, one.longest, one.has_tokenizer, 0});
    }
    return found;
  }

  // The number of examples in these texts.
  size_t examples(const Texts& texts) const {
    const size_t each = std::max<size_t>(1, xformc_engine_given_input_count(get()));
    if (texts.size() % each == 0) return texts.size() / each;
    throw Error(XFORMC_INVALID_ARGUMENT, "an example has a text for each of " + std::to_string(each) +
                                             " inputs; found " + std::to_string(texts.size()) + " texts");
  }

  static std::vector<xformc_array> c_arrays(const std::vector<Array>& arrays) {
    std::vector<xformc_array> given;
    for (const Array& one : arrays) {
      given.push_back({one.name.c_str(), one.element, one.data, one.shape.data(), one.shape.size()});
    }
    return given;
  }

  static std::vector<std::vector<Hypothesis>> each_hypotheses(const Results& results) {
    return detail::each(results.get(), [&](size_t index) { return detail::hypotheses(results.get(), index); });
  }
  static std::vector<Hypothesis> scored(const Results& results) {
    return detail::each(results.get(), [&](size_t index) { return detail::hypothesis(results.get(), index, 0); });
  }
  std::vector<Prediction> predictions(const Results& results) const {
    return detail::each(results.get(),
                        [&](size_t index) { return detail::prediction(results_, results.get(), index); });
  }
  std::vector<Transcription> transcriptions(const Results& results) const {
    return detail::each(results.get(),
                        [&](size_t index) { return detail::transcription(results_, results.get(), index); });
  }

  template <typename Function, typename Read, typename Write, typename... Options>
  void stream(Function function, Read read, Write write, const RunOptions& run, const Options*... options) const {
    detail::Stream<Read, Write> both{read, write};
    const auto run_options = detail::c_options(run);
    try {
      detail::call(function, get(), both.next, &both, both.give, &both, options..., &run_options);
    } catch (const Error& error) {
      if (error.status() == XFORMC_CANCELLED && both.thrown) std::rethrow_exception(both.thrown);
      throw;
    }
  }

  std::unique_ptr<const Log> log_;  // outlives the engine
  std::unique_ptr<xformc_engine, Free> handle_;
  std::vector<Result> results_;
};

}  // namespace api
}  // namespace xformc

#endif
