#include "arguments.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace run {
namespace {

constexpr const char* ASK = "xformc-run --help";
const std::vector<std::string> EVERY;
const std::vector<std::string> TRANSLATION = {"translation"};
const std::vector<std::string> LANGUAGE_MODEL = {"language_model"};
const std::vector<std::string> SEARCH = {"translation", "transcription"};
const std::vector<std::string> SAMPLING = {"language_model", "sampling"};
const std::vector<std::string> WRITING = {"translation", "transcription", "language_model", "sampling"};

constexpr const char* USAGE = R"(Usage: xformc-run [OPTIONS] ENGINE [FILE]...

  Run an engine on lines of text or on .wav files, without Python.

  xformc-run demo/engine < in.txt > out.txt
  xformc-run demo/engine -i in.txt -o out.txt
  echo 'forty-two' | xformc-run demo/engine -b 8 --n-best 3
  echo 'Once upon a time' | xformc-run lm/engine --temperature 0.7 --seed 4
  echo 'the dog sleeps' | xformc-run tagger/engine --json
  xformc-run recognizer/engine one.wav two.wav

  ENGINE is a folder made by `xformc build`, of target portable, cpu or native.
  Its task says what becomes of a line: a translation, a continuation, labels or
  other results. Lines are UTF-8. Results keep the order of the lines. Defaults of the
  search and of sampling come from the engine. FILEs are the examples of an engine
  whose only input is a sound; in a line, the text of a sound is the path of its file.

  Translation: with --n-best above 1, lines have Moses' format,
  `0 ||| text ||| logprob= -2.31 length= 7 ||| -1.51`, with lines counted from 0
  and the score last. With --json:
  {"line": 1, "hypotheses": [{"text": "...", "score": -1.5}]}

  Language models: each text begins with its prompt. With --json, it does not:
  {"line": 1, "text": "...", "score": -1.5, "tokens": 12}

  Tagging and classification: tabs separate the texts of an engine with several
  inputs. Labels of words are separated by spaces. With --json:
  {"line": 1, "label": "good", "probabilities": {"bad": 0.1, "good": 0.9}}

  Other results: of an engine whose spec declares them, a line has the written
  text, if there is one, and then each result after a tab. With --json, each
  result is an object under its name.

  ONNX Runtime (libonnxruntime.so, 1.24 or newer) is searched for beside this
  program and its library, in Python environments, and where the system has its
  libraries. --onnxruntime or the variable XFORMC_ONNXRUNTIME name its file.

  Exit codes: 0 success, 1 a bug, 2 an error in the input, 130 interrupted,
  141 the reader of the output has gone.
)";

using Set = std::function<void(Arguments&, const std::string&)>;

struct Option {
  std::vector<std::string> names;  // the long one first
  const char* value;               // what the help calls its value; nullptr for a flag
  const char* help;
  std::vector<std::string> tasks;  // empty for every task
  Set set;
};

[[noreturn]] void wrong(const std::string& message) { throw xformc::Error(XFORMC_INVALID_ARGUMENT, message, "", ASK); }

int64_t integer(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || errno != 0) wrong("'" + text + "' is not a valid integer");
  return value;
}

double number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') wrong("'" + text + "' is not a valid number");
  return value;
}

template <typename Struct>
Set counts(Struct Arguments::* part, std::optional<int64_t> Struct::* field) {
  return [=](Arguments& to, const std::string& text) { to.*part.*field = integer(text); };
}

template <typename Struct>
Set measures(Struct Arguments::* part, std::optional<double> Struct::* field) {
  return [=](Arguments& to, const std::string& text) { to.*part.*field = number(text); };
}

template <typename Struct>
Set texts(Struct Arguments::* part, std::string Struct::* field) {
  return [=](Arguments& to, const std::string& text) { to.*part.*field = text; };
}

// An option of the search and of sampling, of which an engine has one.
template <typename Number>
Set both(std::optional<Number> xformc::SearchOptions::* search, std::optional<Number> xformc::SampleOptions::* sampling,
         Number (*read)(const std::string&)) {
  return [=](Arguments& to, const std::string& text) { to.search.*search = to.sampling.*sampling = read(text); };
}

// Digits are an id, everything else is a piece.
xformc::Token token(const std::string& text) {
  const bool digits = std::all_of(text.begin(), text.end(), [](char one) { return '0' <= one && one <= '9'; });
  if (digits && !text.empty() && text.size() <= 18) return integer(text);
  return text;
}

Set marks(bool Arguments::* field, bool value = true) {
  return [=](Arguments& to, const std::string&) { to.*field = value; };
}

Set names(std::string Arguments::* field) {
  return [=](Arguments& to, const std::string& text) { to.*field = text; };
}

const std::vector<Option>& options() {
  using A = Arguments;
  using Search = xformc::SearchOptions;
  using Sampling = xformc::SampleOptions;
  using Batches = xformc::RunOptions;
  static const std::vector<Option> found = {
      {{"--input", "-i"}, "FILE", "Read lines from this file; `-` is standard input.", EVERY, names(&A::input)},
      {{"--output", "--out", "-o"}, "FILE", "Write to this file; `-` is standard output.", EVERY, names(&A::output)},
      {{"--json"}, nullptr, "Print a JSON object for each line.", EVERY, marks(&A::json)},
      {{"--truncate"},
       nullptr,
       "Cut texts that are too long, with a warning.",
       EVERY,
       [](A& to, const std::string&) { to.batches.truncate = true; }},
      {{"--beam-size", "--beam", "-b"},
       "N",
       "Hypotheses kept at each step; 1 is greedy.",
       SEARCH,
       counts(&A::search, &Search::beam_size)},
      {{"--n-best"}, "N", "Texts of each line, best first.", SEARCH, counts(&A::search, &Search::n_best)},
      {{"--length-penalty"},
       "ALPHA",
       "Larger values prefer longer texts.",
       SEARCH,
       measures(&A::search, &Search::length_penalty)},
      {{"--prefix"},
       "TEXT",
       "What every text begins with, such as a language tag.",
       SEARCH,
       [](A& to, const std::string& text) { to.search.prefixes = {text}; }},
      {{"--max-length-factor"},
       "FACTOR",
       "At most this times the source's tokens ...",
       TRANSLATION,
       measures(&A::search, &Search::max_length_factor)},
      {{"--max-length-offset"},
       "N",
       "... plus this many tokens.",
       TRANSLATION,
       counts(&A::search, &Search::max_length_offset)},
      {{"--min-length"},
       "N",
       "No text ends before it has this many tokens, the end token counted.",
       SEARCH,
       counts(&A::search, &Search::min_length)},
      {{"--length-penalty-kind"}, "KIND", "gnmt or average.", SEARCH, texts(&A::search, &Search::length_penalty_kind)},
      {{"--stop-rule"},
       "RULE",
       "When a search is done: first, best, complete or shrink.",
       SEARCH,
       texts(&A::search, &Search::stop_rule)},
      {{"--patience"},
       "FACTOR",
       "The rule first waits for this times the beam's size.",
       SEARCH,
       measures(&A::search, &Search::patience)},
      {{"--preset"},
       "NAME",
       "Length penalty and stop rule of paper, huggingface, fairseq, ctranslate2 or marian.",
       SEARCH,
       texts(&A::search, &Search::preset)},
      {{"--suppress-tokens"},
       "TOKEN",
       "A token that is never written: its id or its piece. Repeat it for more.",
       WRITING,
       [](A& to, const std::string& text) {
         if (!to.search.suppress_tokens) to.search.suppress_tokens.emplace();
         to.search.suppress_tokens->push_back(token(text));
         to.sampling.suppress_tokens = to.search.suppress_tokens;
       }},
      {{"--no-repeat-ngram-size"},
       "N",
       "No sequence of this many tokens occurs twice in a text (0: any may).",
       WRITING,
       both(&Search::no_repeat_ngram_size, &Sampling::no_repeat_ngram_size, integer)},
      {{"--repetition-penalty"},
       "FACTOR",
       "Above 1, makes tokens that the text already has less likely.",
       WRITING,
       both(&Search::repetition_penalty, &Sampling::repetition_penalty, number)},
      {{"--presence-penalty"},
       "X",
       "Subtract this from the score of each token that the text already has.",
       WRITING,
       both(&Search::presence_penalty, &Sampling::presence_penalty, number)},
      {{"--frequency-penalty"},
       "X",
       "Subtract this for each time that the text already has the token.",
       WRITING,
       both(&Search::frequency_penalty, &Sampling::frequency_penalty, number)},
      {{"--prefix-bias"},
       "SHARE",
       "Do not force the prefix: its tokens have this share of the probability.",
       SEARCH,
       measures(&A::search, &Search::prefix_bias)},
      {{"--beam-groups"},
       "N",
       "Divide the beam into N groups, of which each avoids the tokens of those before it.",
       SEARCH,
       counts(&A::search, &Search::beam_groups)},
      {{"--diversity-penalty"},
       "X",
       "Subtract this for each hypothesis of earlier groups with the token.",
       SEARCH,
       measures(&A::search, &Search::diversity_penalty)},
      {{"--coverage-penalty"},
       "X",
       "Weight of the coverage of the source in the score of a text; the engine must have coverage.",
       SEARCH,
       measures(&A::search, &Search::coverage_penalty)},
      {{"--scores"}, nullptr, "Put the score and a tab before each line.", TRANSLATION, marks(&A::scores)},
      {{"--token-scores"},
       nullptr,
       "With --json, also the log probability of each token.",
       WRITING,
       [](A& to, const std::string&) { to.token_scores = to.batches.token_scores = true; }},
      {{"--align"},
       nullptr,
       "Add the links of source and target words, as in Pharaoh: 0-0 1-2, counted from 0.",
       TRANSLATION,
       marks(&A::align)},
      {{"--attention"},
       nullptr,
       "With --json, also the attention weights of each token on those of the source.",
       TRANSLATION,
       marks(&A::attention)},
      {{"--align-with"},
       "FILE",
       "Print the links of the lines with their translations, the lines of this file.",
       TRANSLATION,
       names(&A::align_with)},
      {{"--stream"},
       nullptr,
       "Print each text as it is sampled, one line after the other; so it is on a terminal.",
       LANGUAGE_MODEL,
       [](A& to, const std::string&) { to.stream = true; }},
      {{"--no-stream"},
       nullptr,
       "Print texts when they are there, also on a terminal.",
       LANGUAGE_MODEL,
       [](A& to, const std::string&) { to.stream = false; }},
      {{"--json-input"},
       nullptr,
       "Lines are JSON: \"a text\", or {\"text\": \"...\"}. Needs --json.",
       LANGUAGE_MODEL,
       marks(&A::json_input)},
      {{"--temperature"},
       "T",
       "Divide the logits by this; 0 is greedy.",
       SAMPLING,
       measures(&A::sampling, &Sampling::temperature)},
      {{"--top-k"},
       "K",
       "Sample from the k most likely tokens (0: no limit).",
       SAMPLING,
       counts(&A::sampling, &Sampling::top_k)},
      {{"--top-p"},
       "P",
       "Sample from the tokens that add up to probability p.",
       SAMPLING,
       measures(&A::sampling, &Sampling::top_p)},
      {{"--max-new-tokens"},
       "N",
       "Stop after this many new tokens.",
       SAMPLING,
       counts(&A::sampling, &Sampling::max_new_tokens)},
      {{"--stop"},
       "TEXT",
       "End a text before this one; may be repeated.",
       LANGUAGE_MODEL,
       [](A& to, const std::string& text) { to.sampling.stop.push_back(text); }},
      {{"--seed"},
       "N",
       "Random seed of line 1; each later line has the next.",
       SAMPLING,
       counts(&A::sampling, &Sampling::seed)},
      {{"--window"},
       "N",
       "Lines read ahead to sort by length; 1 answers each at once.",
       EVERY,
       counts(&A::batches, &Batches::window)},
      {{"--workers", "-j"},
       "N",
       "Batches run at the same time, sharing the cores.",
       EVERY,
       counts(&A::batches, &Batches::workers)},
      {{"--max-batch-tokens"},
       "N",
       "Capacity of a batch in tokens, padding included.",
       EVERY,
       counts(&A::batches, &Batches::max_batch_tokens)},
      {{"--threads"},
       "N",
       "Cores to use; all of them unless given.",
       EVERY,
       counts(&A::load, &xformc::LoadOptions::threads)},
      {{"--onnxruntime"},
       "FILE",
       "ONNX Runtime's library, libonnxruntime.so.",
       EVERY,
       [](A& to, const std::string& text) { to.load.onnxruntime = text; }},
      {{"--no-verify-hashes"},
       nullptr,
       "Compare the sizes of the engine's files only.",
       EVERY,
       [](A& to, const std::string&) { to.load.verify_hashes = false; }},
      {{"--verbose", "-v"}, nullptr, "Log details to standard error.", EVERY, marks(&A::verbose)},
      {{"--version", "-V"}, nullptr, "Print the version.", EVERY, marks(&A::version)},
      {{"--help", "-h"}, nullptr, "Show this message.", EVERY, marks(&A::help)},
  };
  return found;
}

const Option& find(const std::string& name) {
  for (const Option& option : options()) {
    for (const std::string& one : option.names) {
      if (one == name) return option;
    }
  }
  wrong("No such option: " + name);
}

// The options of these tasks, with their help.
std::string described(const std::vector<std::string>& tasks) {
  constexpr size_t COLUMN = 30;
  std::string text;
  for (const Option& option : options()) {
    if (option.tasks != tasks) continue;
    std::string names = "  ";
    for (auto name = option.names.rbegin(); name != option.names.rend(); ++name) {
      names += (names.size() > 2 ? ", " : "") + *name;
    }
    if (option.value != nullptr) names += std::string(" ") + option.value;
    names.resize(std::max(names.size() + 2, COLUMN), ' ');
    text += names + option.help + "\n";
  }
  return text;
}

// One word that begins with a dash: an option, and its value if it is inside the word or is the next one.
class Reader {
 public:
  explicit Reader(const std::vector<std::string>& words) : words_(words) {}

  Arguments all() {
    bool only_names = false;
    while (next_ < words_.size()) {
      const std::string& word = words_[next_++];
      if (!only_names && word == "--") {
        only_names = true;
      } else if (only_names || word.size() < 2 || word[0] != '-') {
        if (found_.engine.empty()) {
          found_.engine = word;
        } else {
          found_.files.push_back(word);
        }
      } else {
        read(word);
      }
    }
    if (found_.engine.empty() && !found_.help && !found_.version) wrong("Missing argument 'ENGINE'.");
    check();
    return found_;
  }

 private:
  void check() const {
    const auto refuse = [](bool wrongly, const char* message, const char* hint) {
      if (wrongly) throw xformc::Error(XFORMC_INVALID_ARGUMENT, message, "", hint);
    };
    const bool streams = found_.stream.value_or(false), paced = found_.batches.workers || found_.batches.window;
    refuse(found_.token_scores && !found_.json, "--token-scores needs --json",
           "each object then has the pieces and their scores, too");
    refuse(found_.attention && !found_.json, "--attention needs --json",
           "each object then has `attention`, a list for each token");
    refuse(found_.json_input && !found_.json, "--json-input needs --json",
           "a line of text cannot show a text with line breaks");
    refuse(streams && paced, "--workers and --window have no effect with --stream", "leave them out");
    refuse(streams && found_.json, "--stream prints text, and --json prints objects", "leave one of them out");
  }

  void read(const std::string& word) {
    const bool is_long = word[1] == '-';
    const size_t split = is_long ? word.find('=') : word.size() > 2 ? 2 : std::string::npos;
    const std::string name = word.substr(0, split);
    const Option& option = find(name);
    std::optional<std::string> value;
    if (split != std::string::npos) value = word.substr(is_long ? split + 1 : split);
    if (option.value == nullptr && value) wrong("Option '" + name + "' does not take a value.");
    if (option.value != nullptr && !value) {
      if (next_ == words_.size()) wrong("Option '" + name + "' requires an argument.");
      value = words_[next_++];
    }
    set(option, name, value.value_or(""));
  }

  void set(const Option& option, const std::string& name, const std::string& value) {
    if (!option.tasks.empty()) found_.tasks.emplace_back(name, option.tasks);
    try {
      option.set(found_, value);
    } catch (const xformc::Error& error) {
      wrong("Invalid value for '" + name + "': " + error.message());
    }
  }

  const std::vector<std::string>& words_;
  size_t next_ = 0;
  Arguments found_;
};

// Whether the character may be part of a name, or of a path.
bool in_word(char one) { return std::isalnum(static_cast<unsigned char>(one)) || strchr("_.'/-", one) != nullptr; }

// The name that an option has in the API: beam_size of --beam-size.
std::string in_api(const Option& option) {
  std::string name = option.names[0].substr(2);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// The options that a text begins with, as they are typed: of "draft and json_schema exclude each other" both. `end` becomes
// the end of their list, or 0 if there is none.
std::string listed(const std::string& text, size_t& end) {
  const auto follows = [&text](size_t at, const std::string& word) { return text.compare(at, word.size(), word) == 0; };
  std::string typed;
  for (size_t at = 0;;) {
    size_t stop = at;
    while (stop < text.size() && (std::islower(static_cast<unsigned char>(text[stop])) || text[stop] == '_')) ++stop;
    const std::string name = text.substr(at, stop - at);
    const auto found = std::find_if(options().begin(), options().end(),
                                    [&name](const Option& option) { return in_api(option) == name; });
    if (found == options().end()) return "";
    typed += found->names[0];
    if (follows(stop, ": ") || follows(stop, " must ") || follows(stop, " exclude ")) {
      end = stop;
      return typed;
    }
    const std::string between = follows(stop, ", ") ? ", " : follows(stop, " and ") ? " and " : "";
    if (between.empty()) return "";
    typed += between;
    at = stop + between.size();
  }
}

void check_files(const Arguments& arguments, const xformc::Engine& engine) {
  const auto fail = [](const std::string& message, const char* hint) {
    throw xformc::Error(XFORMC_INVALID_ARGUMENT, message, "", hint);
  };
  const std::vector<xformc::Input> inputs = engine.given_inputs();
  if (arguments.input != "-") fail("the examples are either files or lines of --input", "leave one of them out");
  if (inputs.size() > 1) {
    fail("this engine has several inputs",
         "write a line for each example, with tabs between its texts and files, and give the lines to --input");
  }
  if (inputs[0].rate == 0) fail("this engine reads no files as examples", "give it lines of text by --input FILE");
}

}  // namespace

Arguments parse(const std::vector<std::string>& words) { return Reader(words).all(); }

void check_task(const Arguments& arguments, const xformc::Engine& engine) {
  if (!arguments.files.empty()) check_files(arguments, engine);
  for (const auto& [name, tasks] : arguments.tasks) {
    if (std::find(tasks.begin(), tasks.end(), engine.task()) != tasks.end()) continue;
    std::string wanted;
    for (const std::string& task : tasks) wanted += (wanted.empty() ? "" : " or ") + task;
    throw xformc::Error(
        XFORMC_INVALID_ARGUMENT,
        engine.name() + " is a " + engine.task() + " engine; " + name + " needs a " + wanted + " engine", "", ASK);
  }
}

std::string as_typed(const std::string& text) {
  size_t end = 0;
  const std::string typed = listed(text, end);
  std::string rest = text.substr(end);
  for (const Option& option : options()) {
    const std::string name = in_api(option);
    if (name.find('_') == std::string::npos) continue;  // may be a word like any other
    for (size_t at = rest.find(name); at != std::string::npos; at = rest.find(name, at)) {
      const size_t after = at + name.size();
      const bool alone = (at == 0 || !in_word(rest[at - 1])) && (after == rest.size() || !in_word(rest[after]));
      if (alone) rest.replace(at, name.size(), option.names[0]);
      at += alone ? option.names[0].size() : 1;
    }
  }
  return typed + rest;
}

std::string help() {
  return std::string(USAGE) + "\nOptions:\n" + described(EVERY) + "\nOptions of translation and transcription:\n" +
         described(SEARCH) + "\nOptions of translation:\n" + described(TRANSLATION) +
         "\nOptions of language models:\n" + described(LANGUAGE_MODEL) +
         "\nOptions of language models and of sampling:\n" + described(SAMPLING) +
         "\nOptions of all that write text:\n" + described(WRITING);
}

}  // namespace run
