// xformc-run: runs an engine on lines of text without Python, as `xformc translate`, `generate`, `transcribe` and
// `predict` do.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <new>
#include <system_error>

#include "include/xformc.hpp"
#include "numbers.h"
#include "run/arguments.h"
#include "run/characters.h"
#include "run/lines.h"
#include "run/output.h"
#include "run/prompts.h"
#include "run/values.h"

namespace run {
namespace {

constexpr int64_t MOST_WORKERS = 8;
constexpr const char* ONE_EACH = "give one for each text";

int64_t cores() {
  cpu_set_t found;
  return sched_getaffinity(0, sizeof found, &found) == 0 ? CPU_COUNT(&found) : 1;
}

// Chooses what was not asked for. On a terminal each line is answered at once, by all cores. Otherwise there is a worker
// for each core, as far as the lines that wait keep them busy.
void choose_pace(Arguments& arguments, Lines& lines) {
  if (lines.is_terminal() || arguments.stream.value_or(false)) arguments.batches.window = 1;
  std::optional<int64_t>& workers = arguments.batches.workers;
  if (!workers && arguments.batches.window == 1) workers = 1;
  if (!workers) workers = lines.workers(std::clamp<int64_t>(arguments.load.threads.value_or(cores()), 1, MOST_WORKERS));
  arguments.load.workers = workers;
}

std::string fixed(double value) {
  char text[400];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

std::string json_line(size_t index) { return "{\"line\": " + std::to_string(index + 1) + ", "; }

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += (i > 0 ? between : "") + words[i];
  return text;
}

// ---- Translation ----------------------------------------------------------------------------------------------------

using Hypotheses = std::vector<xformc::Hypothesis>;

std::string named_fields(const xformc::Engine& engine, const std::vector<xformc::Value>& values);

// The scores of a text's tokens, and the tokens, each after a comma.
std::string token_fields(const xformc::Engine& engine, const xformc::Hypothesis& one) {
  std::vector<xformc::Input> inputs = engine.inputs();
  for (const xformc::Input& given : engine.given_inputs()) {
    inputs.erase(std::find_if(inputs.begin(), inputs.end(), [&](const auto& item) { return item.name == given.name; }));
  }
  const xformc::Input& written = inputs.at(0);
  std::vector<std::string> pieces, scores;
  for (const int64_t token : one.tokens) {
    if (written.has_tokenizer) pieces.push_back(json_string(engine.piece(written.name, token)));
  }
  for (const float score : one.token_scores) scores.push_back(json_number(score));
  return (written.has_tokenizer ? ", \"pieces\": [" + joined(pieces, ", ") + "]" : "") + ", \"token_scores\": [" +
         joined(scores, ", ") + "]";
}

// The links of a text, and the attention if it was asked for, each after a comma.
std::string links_fields(const Arguments& arguments, const std::optional<xformc::Alignment>& found) {
  if (!found) return "";
  std::vector<std::string> links, rows;
  for (const auto& [source, target] : found->words) {
    links.push_back("[" + std::to_string(source) + ", " + std::to_string(target) + "]");
  }
  const std::string fields = ", \"alignment\": [" + joined(links, ", ") + "]";
  if (!arguments.attention) return fields;
  for (size_t row = 0; row < found->targets; ++row) {
    std::vector<std::string> weights;
    for (size_t i = 0; i < found->sources; ++i) {
      weights.push_back(json_number(found->attention[row * found->sources + i]));
    }
    rows.push_back("[" + joined(weights, ", ") + "]");
  }
  return fields + ", \"attention\": [" + joined(rows, ", ") + "]";
}

std::string links(const xformc::Hypothesis& one, const char* before) {
  return one.alignment ? before + one.alignment->pharaoh() : "";
}

// Texts, each with the results that depend on it, and then `others`.
std::string json(const xformc::Engine& engine, const Arguments& arguments, size_t index, const Hypotheses& hypotheses,
                 const std::vector<xformc::Value>& others = {}) {
  std::string items;
  for (const xformc::Hypothesis& one : hypotheses) {
    items += std::string(items.empty() ? "" : ", ") + "{\"text\": " + json_string(one.text) +
             ", \"score\": " + json_number(one.score) + (arguments.token_scores ? token_fields(engine, one) : "") +
             links_fields(arguments, one.alignment) + named_fields(engine, one.results) + "}";
  }
  return json_line(index) + "\"hypotheses\": [" + items + "]" + named_fields(engine, others) + "}\n";
}

// How a log probability becomes a score.
struct Penalties {
  double length, offset;
  bool coverage;  // whether there is a coverage penalty, with which a score does not tell the log probability
};

// Moses' n-best list: the line from 0, the text, features, and the score by which they are ranked.
std::string n_best(size_t index, const Hypotheses& hypotheses, const Penalties& by) {
  std::string lines;
  for (const xformc::Hypothesis& one : hypotheses) {
    const double divisor = std::pow((static_cast<double>(one.tokens.size()) + by.offset) / (1 + by.offset), by.length);
    const std::string log_probability = by.coverage ? "" : "logprob= " + fixed(one.score * divisor) + " ";
    lines += std::to_string(index) + " ||| " + one_line(one.text) + " ||| " + log_probability +
             "length= " + std::to_string(one.tokens.size()) + " ||| " + fixed(one.score) + links(one, " ||| ") + "\n";
  }
  return lines;
}

std::string line(const xformc::Hypothesis& one, bool scores) {
  return (scores ? fixed(one.score) + "\t" : "") + one_line(one.text) + links(one, "\t") + "\n";
}

// Prints the links of the lines with those of another file, their translations.
void align(const xformc::Engine& engine, const Arguments& arguments, Lines& lines, Output& output) {
  Lines targets(arguments.align_with);
  int64_t number = 0;
  const auto read = [&](std::vector<std::string>& texts) {
    const bool source = lines.next(texts[0]), target = targets.next(texts[1]);
    if (target && !source) {
      throw xformc::Error(XFORMC_INVALID_ARGUMENT,
                          "there are more translations than texts, which are " + xformc::grouped(number), "", ONE_EACH);
    }
    ++number;
    if (target || !source) return source;
    throw xformc::Error(XFORMC_INVALID_ARGUMENT, "there is no translation for this text",
                        "line " + std::to_string(number), ONE_EACH);
  };
  const auto write = [&](size_t index, const xformc::Alignment& found) {
    output.write(arguments.json ? json_line(index) + links_fields(arguments, found).substr(2) + "}\n"
                                : found.pharaoh() + "\n");
  };
  engine.align_stream(read, write, arguments.batches);
}

void translate(const xformc::Engine& engine, const Arguments& arguments, Lines& lines, Output& output) {
  if (!arguments.align_with.empty()) return align(engine, arguments, lines, output);
  xformc_search_options unset;
  xformc_search_options_init(&unset, sizeof unset);
  if (!arguments.search.preset.empty()) unset.preset = arguments.search.preset.c_str();
  xformc_engine_search_options(engine.get(), &unset);
  const std::string given = arguments.search.length_penalty_kind;
  const std::string kind = given.empty() ? unset.length_penalty_kind : given;
  const Penalties by{arguments.search.length_penalty.value_or(unset.length_penalty), kind == "gnmt" ? 5.0 : 0.0,
                     arguments.search.coverage_penalty.value_or(unset.coverage_penalty) > 0};
  const bool several = arguments.search.n_best.value_or(unset.n_best) > 1;
  engine.translate_stream([&](std::string& text) { return lines.next(text); },
                          [&](size_t index, const Hypotheses& found) {
                            output.write(arguments.json ? json(engine, arguments, index, found)
                                         : several      ? n_best(index, found, by)
                                                        : line(found[0], arguments.scores));
                          },
                          arguments.search, arguments.batches);
}

// ---- Language models ------------------------------------------------------------------------------------------------

std::string json(const xformc::Engine& engine, const Arguments& arguments, size_t index,
                 const xformc::Hypothesis& one) {
  return json_line(index) + "\"text\": " + json_string(one.text) + ", \"score\": " + json_number(one.score) +
         ", \"tokens\": " + std::to_string(one.tokens.size()) +
         (arguments.token_scores ? token_fields(engine, one) : "") + "}\n";
}

std::string continued(const std::string& prompt, const xformc::Hypothesis& one) {
  const bool new_word = one.text.rfind(' ', 0) == 0;
  return std::string(new_word ? without_end_spaces(prompt) : prompt) + one_line(one.text) + "\n";
}

// Whether texts are printed as they are sampled.
bool streams(const xformc::Engine& engine, const Arguments& arguments) {
  const bool shown = arguments.output == "-" && !arguments.json && isatty(1) == 1;
  return arguments.stream.value_or(shown && engine.streams());
}

// Prints a prompt and its text, piece by piece.
void stream(const xformc::Engine& engine, const std::string& prompt, const xformc::SampleOptions& sampling,
            const xformc::RunOptions& run, Output& output) {
  bool begun = false;
  const auto write = [&](std::string_view piece) {
    const bool new_word = !piece.empty() && piece[0] == ' ';
    std::string text = begun ? "" : new_word ? std::string(without_end_spaces(prompt)) : prompt;
    begun = true;
    output.write(text + one_line(std::string(piece)));
  };
  engine.stream_tokens(prompt, write, sampling, run);
  output.write(begun ? "\n" : prompt + "\n");
}

// One line after the other; the seed of each is one more.
void stream_lines(const xformc::Engine& engine, const Arguments& arguments, Lines& lines, Output& output) {
  xformc::RunOptions run = arguments.batches;
  xformc::SampleOptions sampling = arguments.sampling;
  run.workers = 1;
  sampling.seed = sampling.seed.value_or(0);
  std::string prompt;
  for (size_t number = 1; lines.next(prompt); ++number, ++*sampling.seed) {
    try {
      stream(engine, prompt, sampling, run, output);
    } catch (const xformc::Error& error) {
      const std::string place = error.place() == "line 1" ? "line " + std::to_string(number) : error.place();
      throw xformc::Error(error.status(), error.message(), place, error.hint());
    }
  }
}

void generate(const xformc::Engine& engine, const Arguments& arguments, Lines& lines, Output& output) {
  if (streams(engine, arguments)) return stream_lines(engine, arguments, lines, output);
  std::deque<std::string> prompts;  // those that were read and not yet continued
  size_t number = 0;
  const auto read = [&](std::string& prompt) {
    if (!lines.next(prompt)) return false;
    if (arguments.json_input) prompt = json_prompt(prompt, ++number);
    prompts.push_back(prompt);
    return true;
  };
  const auto write = [&](size_t index, const xformc::Hypothesis& one) {
    output.write(arguments.json ? json(engine, arguments, index, one) : continued(prompts.front(), one));
    prompts.pop_front();
  };
  engine.generate_stream(read, write, arguments.sampling, arguments.batches);
}

// ---- Results --------------------------------------------------------------------------------------------------------

using Results = std::vector<xformc::Value>;

const xformc::Result& result_of(const xformc::Engine& engine, const xformc::Value& value) {
  const auto& results = engine.results();
  return *std::find_if(results.begin(), results.end(), [&](const auto& one) { return one.name == value.name; });
}

std::string tokens_of(const xformc::Hypothesis& one, const char* between) {
  std::vector<std::string> tokens;
  for (const int64_t token : one.tokens) tokens.push_back(std::to_string(token));
  return joined(tokens, between);
}

std::string transcript_fields(const xformc::Result& result, const xformc::Value& value) {
  std::vector<std::string> items;
  for (const xformc::Hypothesis& one : value.hypotheses) {
    items.push_back("{" + (result.has_tokenizer ? "\"text\": " + json_string(one.text) + ", " : "") + "\"tokens\": [" +
                    tokens_of(one, ", ") + "], \"score\": " + json_number(one.score) + "}");
  }
  return "\"hypotheses\": [" + joined(items, ", ") + "]";
}

// Whether an example without positions lacks this result, which is one of the whole example.
bool is_missing(const xformc::Result& result, const xformc::Value& value) {
  return result.positions.empty() && value.numbers.empty();
}

// A result as JSON, which a result has in braces.
std::string fields(const xformc::Result& result, const xformc::Value& value) {
  if (result.kind == "ctc") return transcript_fields(result, value);
  const auto numbers = [&] { return is_missing(result, value) ? "null" : json_array(value); };
  if (result.kind == "numbers") return "\"numbers\": " + numbers();
  if (result.kind == "vectors") return (result.positions.empty() ? "\"vector\": " : "\"vectors\": ") + numbers();
  std::vector<std::string> labels, rows;
  for (const std::string& label : value.labels) labels.push_back(json_string(label));
  for (size_t next = 0; next < value.numbers.size();) {
    std::vector<std::string> row;
    for (const std::string& name : result.labels) {
      row.push_back(json_string(name) + ": " + json_number(value.numbers[next++]));
    }
    rows.push_back("{" + joined(row, ", ") + "}");
  }
  const std::string all = "\"labels\": [" + joined(labels, ", ") + "]";
  if (!result.positions.empty()) return all + ", \"probabilities\": [" + joined(rows, ", ") + "]";
  return (result.several ? all : "\"label\": " + (labels.empty() ? "null" : labels[0])) +
         ", \"probabilities\": " + (rows.empty() ? "{}" : rows[0]);
}

// All results as JSON, each after a comma.
std::string named_fields(const xformc::Engine& engine, const Results& values) {
  std::string text;
  for (const xformc::Value& value : values) {
    text += ", " + json_string(value.name) + ": {" + fields(result_of(engine, value), value) + "}";
  }
  return text;
}

// The labels of the whole or of each position; "-" for none, as in training data.
std::string labels_line(const xformc::Value& value) {
  if (value.labels.empty() && !value.numbers.empty()) return "-";
  std::vector<std::string> labels = value.labels;
  std::replace(labels.begin(), labels.end(), std::string(), std::string("-"));
  return joined(labels, " ");
}

std::string line(const xformc::Result& result, const xformc::Value& value) {
  if (result.kind == "ctc") {
    return result.has_tokenizer ? joined_words(value.hypotheses[0].text) : tokens_of(value.hypotheses[0], " ");
  }
  return result.kind == "labels" ? labels_line(value) : numbers_line(value, result.kind == "vectors");
}

// All results as text, each after a tab.
std::string lines_of(const xformc::Engine& engine, const Results& values) {
  std::string text;
  for (const xformc::Value& value : values) text += "\t" + line(result_of(engine, value), value);
  return text;
}

// Splits a line at its tabs, in a text for each input.
std::vector<std::string> split(const std::string& line, size_t number, const std::vector<xformc::Input>& inputs) {
  if (inputs.size() == 1) return {line};
  std::vector<std::string> texts;
  size_t begin = 0;
  for (size_t tab = 0; tab != std::string::npos; begin = tab + 1) {
    tab = line.find('\t', begin);
    texts.push_back(line.substr(begin, tab == std::string::npos ? tab : tab - begin));
  }
  if (texts.size() == inputs.size()) return texts;
  std::vector<std::string> names;
  for (const xformc::Input& input : inputs) names.push_back(input.name);
  throw xformc::Error(XFORMC_INVALID_ARGUMENT,
                      "needs a text for each of " + joined(names, ", ") + ", found " + std::to_string(texts.size()),
                      "line " + std::to_string(number), "put one text for each input on a line, separated by tabs");
}

// Reads lines with a text for each given input.
std::function<bool(std::vector<std::string>&)> reads(const xformc::Engine& engine, Lines& lines) {
  return [&lines, inputs = engine.given_inputs(), number = size_t{0}](std::vector<std::string>& texts) mutable {
    std::string line;
    if (!lines.next(line)) return false;
    texts = split(line, ++number, inputs);
    return true;
  };
}

void predict(const xformc::Engine& engine, const Arguments& arguments, Lines& lines, Output& output) {
  const bool declared = engine.task() == "prediction";
  const auto write = [&](size_t index, const xformc::Prediction& found) {
    if (!arguments.json) return output.write(lines_of(engine, found.results).substr(1) + "\n");
    const std::string all =
        declared ? named_fields(engine, found.results).substr(2) : fields(engine.results()[0], found.results[0]);
    output.write(json_line(index) + all + "}\n");
  };
  engine.predict_stream(reads(engine, lines), write, arguments.batches);
}

// The texts with the results that depend on them, and then the other results.
std::string json(const xformc::Engine& engine, const Arguments& arguments, size_t index,
                 const xformc::Transcription& found) {
  Results others;
  for (const xformc::Value& value : found.results) {
    const Results& own = found.hypotheses[0].results;
    if (std::none_of(own.begin(), own.end(), [&](const auto& one) { return one.name == value.name; })) {
      others.push_back(value);
    }
  }
  return json(engine, arguments, index, found.hypotheses, others);
}

void transcribe(const xformc::Engine& engine, const Arguments& arguments, Lines& lines, Output& output) {
  const auto write = [&](size_t index, const xformc::Transcription& found) {
    const std::string& best = found.hypotheses[0].text;
    output.write(arguments.json ? json(engine, arguments, index, found)
                                : one_line(best) + lines_of(engine, found.results) + "\n");
  };
  if (engine.task() == "sampling") {
    engine.sample_stream(reads(engine, lines), write, arguments.sampling, arguments.batches);
  } else {
    engine.transcribe_stream(reads(engine, lines), write, arguments.search, arguments.batches);
  }
}

// ---- The program ----------------------------------------------------------------------------------------------------

// Throws Error if the file that is written is one that is read.
void check_output(const Arguments& arguments) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (!fs::is_regular_file(arguments.output, none)) return;
  std::vector<std::string> read = arguments.files;
  read.insert(read.end(), {arguments.input, arguments.align_with});
  for (const std::string& file : read) {
    if (!fs::equivalent(file, arguments.output, none)) continue;
    throw xformc::Error(XFORMC_INVALID_ARGUMENT, "--output is a file that is read", arguments.output,
                        "write to another file");
  }
}

void work(Arguments arguments) {
  check_output(arguments);
  const bool named = !arguments.files.empty();
  Lines lines = named ? Lines(arguments.files) : Lines(arguments.input);
  choose_pace(arguments, lines);
  arguments.batches.alignment = arguments.align || arguments.attention;
  arguments.load.log = [&](xformc_log_level level, const char* message) {
    if (level == XFORMC_LOG_WARNING) say(std::string("warning: ") + message);
    if (level == XFORMC_LOG_DEBUG && arguments.verbose) say(std::string("debug: ") + message);
  };
  const xformc::Engine engine(arguments.engine, arguments.load);
  check_task(arguments, engine);
  Output output(arguments.output);
  const std::string task = engine.task();
  const bool transcribes = task == "transcription" || task == "sampling";
  const auto run = task == "translation"      ? translate
                   : task == "language_model" ? generate
                   : transcribes              ? transcribe
                                              : predict;
  run(engine, arguments, lines, output);
  output.finish();
}

// Replaces `from`, if the text has it.
void rename(std::string& text, const std::string& from, const std::string& to) {
  const size_t found = text.find(from);
  if (found != std::string::npos) text.replace(found, from.size(), to);
}

int report(const xformc::Error& error) {
  std::string message = error.what();
  rename(message, "cut it with truncate", "cut it with --truncate");
  rename(message, "max_batch_tokens=", "--max-batch-tokens ");
  rename(message, "the load option onnxruntime", "--onnxruntime");
  say("error: " + (error.place().empty() ? as_typed(message) : message));
  return error.status() == XFORMC_INTERNAL_ERROR ? 1 : 2;
}

int main(const std::vector<std::string>& words) {
  prepare_process();
  try {
    const Arguments arguments = parse(words);
    if (arguments.help || arguments.version) {
      Output output("-");
      output.write(arguments.help ? help() : std::string("xformc-run ") + xformc::version() + "\n");
      output.finish();
    } else {
      work(arguments);
    }
    return 0;
  } catch (const ReaderGone&) {
    return 141;
  } catch (const xformc::Error& error) {
    return report(error);
  } catch (const std::bad_alloc&) {
    say("error: out of memory");
    return 2;
  }
}

}  // namespace
}  // namespace run

int main(int count, char** words) { return run::main({words + (count > 0 ? 1 : 0), words + count}); }
