#include "manifest.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "controls.h"
#include "document.h"
#include "edits.h"
#include "failure.h"
#include "numbers.h"
#include "sha256.h"
#include "unicode.h"

namespace xformc {
namespace {

namespace fs = std::filesystem;

constexpr int64_t FORMAT = 1;
constexpr size_t MANIFEST_BYTES = 1 << 20;
constexpr int64_t FILE_BYTES = int64_t{1} << 40;
constexpr int64_t MAX_BEAM = 1024;  // of CTC
constexpr size_t MAX_ENDS = 64;     // end tokens
constexpr const char* BUILD = "an engine is a folder written by `xformc build RUN -o ENGINE`";

const std::vector<std::string> KINDS = {"tokens", "vectors", "values", "edges"};
const std::vector<std::string> TARGETS = {"portable", "cpu", "native", "cuda", "tensorrt"};
const std::vector<std::string> PRECISIONS = {"float32", "float16", "bfloat16", "int8", "int4", "float8"};
const std::vector<std::string> RESULT_KINDS = {"text", "ctc", "labels", "numbers", "vectors"};
const std::vector<std::string> TEXT_OUTPUTS = {"tokens", "lengths", "scores"};
const std::vector<std::string> BUILDERS = {"tensorrt", "tensorrt_rtx"};

std::vector<std::string> names_of(const std::vector<Input>& inputs) {
  std::vector<std::string> names;
  for (const Input& input : inputs) names.push_back(input.name);
  return names;
}

std::vector<std::string> names_of_tasks() {
  std::vector<std::string> names;
  for (const EngineTask& task : engine_tasks()) names.emplace_back(task.name);
  return names;
}

SpecialTokens read_special(const Document& document, int64_t size) {
  const auto optional = [&](const char* name) -> std::optional<int64_t> {
    if (document.is_null(name)) return std::nullopt;
    return document.integer(name, 0, size - 1);
  };
  SpecialTokens special;
  special.pad = optional("pad");
  special.unknown = optional("unknown");
  special.begin = optional("begin");
  special.end = document.ids("end", MAX_ENDS, size);
  special.ends = document.boolean("ends");
  if (special.pad && std::count(special.end.begin(), special.end.end(), *special.pad) > 0) {
    throw invalid_engine(document.path() + "end has the id of padding, " + std::to_string(*special.pad),
                         document.place(), COPY);
  }
  return special;
}

Input read_input(const Document& document, const std::string& name, const std::vector<std::string>& names) {
  const std::string kind = document.text("kind", KINDS);
  const auto index = std::find(KINDS.begin(), KINDS.end(), kind) - KINDS.begin();
  Input input{name, static_cast<Kind>(index), 0, {}, "", std::nullopt, ""};
  const Document axes = document.section("axes");
  if (input.kind == Kind::tokens) input.vocabulary = document.integer("vocabulary", 4, MAX_SIZE);
  for (const std::string& axis : axes.keys()) input.axes.emplace_back(axis, axes.integer(axis, 1, MAX_SIZE));
  if (input.kind == Kind::edges || !document.is_null("of")) input.of = document.text("of", names);
  if (!document.is_null("longest")) input.longest = document.integer("longest", 1);
  if (input.kind == Kind::tokens && !document.is_null("tokenizer")) input.tokenizer = document.text("tokenizer");
  if (input.kind == Kind::tokens) {
    input.special = read_special(document.section("special_tokens"), input.vocabulary);
  }
  if (input.kind == Kind::vectors && !document.is_null("rate")) {
    input.rate = document.integer("rate", 1);
    if (input.axes.size() != 1 || !input.of.empty()) {
      throw invalid_engine("the input " + name + " has a rate, but is no sequence of samples", document.place(), COPY);
    }
  }
  return input;
}

std::vector<Input> read_inputs(const Document& document) {
  std::vector<Input> inputs;
  const std::vector<std::string> names = document.keys();
  for (const std::string& name : names) inputs.push_back(read_input(document.section(name), name, names));
  for (const Input& input : inputs) {
    const auto along =
        std::find_if(inputs.begin(), inputs.end(), [&](const Input& one) { return one.name == input.of; });
    if (along == inputs.end() || along->has_positions()) continue;
    throw invalid_engine(
        "the input " + input.name + " needs the positions of " + input.of + ", which has none of its own",
        document.place(), COPY);
  }
  return inputs;
}

std::vector<std::pair<std::string, FileRecord>> read_files(const Document& document) {
  std::vector<std::pair<std::string, FileRecord>> files;
  for (const std::string& name : document.keys()) {
    const fs::path path(name);
    const bool climbs = std::any_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
    if (path.relative_path().lexically_normal() == "." || path.empty() || path.is_absolute() || climbs ||
        name.find('\\') != std::string::npos || !is_printable(name)) {
      throw invalid_engine(Json(name).dump(-1, ' ', true) + " is not a path inside the engine", document.place(), COPY);
    }
    const Document record = document.section(name);
    files.emplace_back(name, FileRecord{record.integer("bytes", 0, FILE_BYTES), record.text("sha256")});
  }
  return files;
}

// Checks what this runtime does not use, so that both runtimes refuse the same documents.
void check_others(const Document& document) {
  if (document.has("calibration")) {
    const Document calibration = document.section("calibration");
    calibration.text("rule");
    calibration.integer("examples", 1);
  }
  if (document.has("refused")) {
    const Document refused = document.section("refused");
    for (const std::string& name : refused.keys()) refused.text(name);
  }
  if (!document.has("plans")) return;
  const Document plans = document.section("plans");
  for (const std::string& name : plans.keys()) {
    const Document plan = plans.section(name), profile = plan.section("profile");
    for (const std::string& axis : profile.keys()) profile.integers(axis, 3);
    plan.text("builder", BUILDERS);
    plan.text("version");
    for (const char* key : {"device", "capability"}) {
      if (!plan.is_null(key)) plan.text(key);
    }
    plan.text("precision");
  }
}

SearchOptions read_search(const Document& document) {
  SearchOptions options;
  options.beam_size = document.integer("beam_size", 1);
  options.n_best = document.integer("n_best", 1, options.beam_size);
  options.length_penalty = document.number("length_penalty", -MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY);
  options.max_length_factor = document.number("max_length_factor", 0, MAX_FACTOR);
  options.max_length_offset = document.integer("max_length_offset", 0, MAX_OFFSET);
  options.controls = read_controls(document);
  options.edits = read_edits(document);
  return options;
}

SampleOptions read_sampling(const Document& document) {
  SampleOptions options;
  options.temperature = document.number("temperature", 0, MAX_TEMPERATURE);
  options.top_k = document.integer("top_k", 0);
  options.top_p = document.number("top_p", 0, 1);
  options.max_new_tokens = document.integer("max_new_tokens", 1);
  options.edits = read_edits(document);
  return options;
}

// Whether a setting of a result holds, as Python sees it. Throws Failure unless it is a number or a printable word.
bool read_setting(const Document& result, const Document& settings, const std::string& name) {
  const Json& value = settings.fields()[name];
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  if (value.is_string() && is_printable(value.get_ref<const std::string&>())) return !value.get<std::string>().empty();
  throw invalid_engine("the setting " + name + " must be a number or a word", result.place(), COPY);
}

std::vector<Input> given_inputs(const Manifest& manifest) {
  std::vector<Input> found;
  for (const Input& input : manifest.inputs) {
    const bool is_written = std::any_of(
        manifest.results.begin(), manifest.results.end(),
        [&](const DeclaredResult& result) { return result.kind == ResultKind::text && result.name == input.name; });
    if (!is_written) found.push_back(input);
  }
  return found;
}

// Whether a result other than text can be read from an output of the model.
bool is_readable(const DeclaredResult& result, const std::vector<Input>& given) {
  const bool labels = result.kind == ResultKind::labels;
  const auto width = static_cast<int64_t>(result.labels.size());
  const bool positions = result.positions.empty() || std::any_of(given.begin(), given.end(), [&](const Input& input) {
                           return input.name == result.positions && input.has_positions();
                         });
  return positions && (!labels || result.axes == std::vector<int64_t>{width}) &&
         std::none_of(given.begin(), given.end(), [&](const Input& input) { return input.name == result.of; });
}

// Whether a text is one of the inputs, and has the outputs of a search.
bool is_written(const DeclaredResult& result, const std::vector<Input>& inputs) {
  return result.outputs == TEXT_OUTPUTS && result.of.empty() &&
         std::any_of(inputs.begin(), inputs.end(),
                     [&](const Input& input) { return input.name == result.name && input.kind == Kind::tokens; });
}

void check_outputs(const Document& document, const Manifest& manifest) {
  for (const DeclaredResult& result : manifest.results) {
    const size_t needed = result.kind == ResultKind::ctc ? TEXT_OUTPUTS.size() : 1;
    if (result.kind == ResultKind::text || result.outputs.size() == needed) continue;
    throw invalid_engine("the result " + result.name + " has " + std::to_string(result.outputs.size()) +
                             " outputs; its kind " + result.kind_name() + " needs " + std::to_string(needed),
                         document.place(), COPY);
  }
}

// Whether the results are the only one of a task that a spec names by a word: the last input, or labels.
bool fit_word(const Manifest& manifest) {
  if (manifest.results.size() != 1) return false;
  const DeclaredResult& result = manifest.results[0];
  const std::vector<std::string>& inputs = engine_task(manifest.task).inputs;
  if (manifest.decoding() != Decoding::forward) return inputs.empty() || result.name == inputs.back();
  return result.positions.empty() != (manifest.task == "tagging") && result.kind == ResultKind::labels &&
         result.outputs == std::vector<std::string>{"probabilities"};
}

// Throws Failure unless the results are those of the task: one written text, which is first, or none.
void check_results(const Document& document, const Manifest& manifest) {
  const std::vector<Input> given = given_inputs(manifest);
  const EngineTask& task = engine_task(manifest.task);
  const bool writes = task.decoding != Decoding::forward;
  bool fits = !manifest.results.empty() && given.empty() == task.alone &&
              given.size() + writes == manifest.inputs.size() &&
              (declares_results(manifest.task) || fit_word(manifest));
  std::vector<std::string> found;
  std::set<std::string> outputs;
  size_t count = 0;
  for (const DeclaredResult& result : manifest.results) {
    const bool is_text = result.kind == ResultKind::text;
    fits = fits && is_text == (writes && found.empty());
    fits = fits && (is_text ? is_written(result, manifest.inputs) : is_readable(result, given));
    outputs.insert(result.outputs.begin(), result.outputs.end());
    count += result.outputs.size();
    found.push_back(result.name + ": " + result.kind_name());
  }
  if (fits && outputs.size() == count) return check_outputs(document, manifest);
  throw invalid_engine("the results do not fit the task " + manifest.task + ": " + joined(found), document.place(),
                       COPY);
}

// The defaults of the engine's task, of which a forward pass has none, and what all engines have.
void read_rest(const Document& document, Manifest& manifest) {
  document.text("xformc");
  manifest.name = document.text("name");
  manifest.target = document.text("target", TARGETS);
  manifest.precision = document.text("precision", PRECISIONS);
  document.integer("parameters", 0);
  document.text("weights");
  manifest.files = read_files(document.section("files"));
  const Decoding decoding = manifest.decoding();
  if (decoding == Decoding::search) manifest.search = read_search(document.section("defaults"));
  if (decoding == Decoding::sample) manifest.sampling = read_sampling(document.section("defaults"));
  check_others(document);
  if (document.has("operators")) manifest.operators = document.integer("operators", 1);
  if (document.has("caches")) document.text("caches", {"int8"});
  if (document.has("controls") && !document.is_null("controls")) {
    const std::vector<std::string> controls = document.texts("controls");
    manifest.takes_prefix = std::find(controls.begin(), controls.end(), "prefix") != controls.end();
  }
}

void check_names(const Document& document, const Manifest& manifest) {
  const std::vector<std::string> names = names_of(manifest.inputs), &wanted = engine_task(manifest.task).inputs;
  const bool tokens = std::all_of(manifest.inputs.begin(), manifest.inputs.end(),
                                  [](const Input& input) { return input.kind == Kind::tokens; });
  const bool same = std::is_permutation(names.begin(), names.end(), wanted.begin(), wanted.end());
  const bool fit = engine_task(manifest.task).alone ? names.size() == 1 && tokens : wanted.empty() || (tokens && same);
  if (!names.empty() && fit) return;
  throw invalid_engine("the inputs do not fit the task " + manifest.task + ": " + joined(names), document.place(),
                       COPY);
}

// The number of hypotheses of CTC.
int64_t read_beam_size(const Document& result, const Document& settings) {
  if (!settings.has("beam_size")) return 1;
  const Json& value = settings.fields()["beam_size"];
  if (value.is_number_integer() && value.is_number_unsigned() && value >= 1 && value <= MAX_BEAM) {
    return value.get<int64_t>();
  }
  throw invalid_engine("the setting beam_size must be from 1 to " + grouped(MAX_BEAM), result.place(), COPY);
}

DeclaredResult read_result(const Document& document, const std::string& name, const std::vector<std::string>& inputs) {
  const Document axes = document.section("axes"), settings = document.section("settings");
  const std::string kind = document.text("kind");
  const auto found = std::find(RESULT_KINDS.begin(), RESULT_KINDS.end(), kind);
  if (found == RESULT_KINDS.end()) {
    throw invalid_engine("this engine has a result of kind " + kind + "; this libxformc knows " + joined(RESULT_KINDS),
                         document.place(), "upgrade libxformc, or run the engine with xformc's Python runtime");
  }
  DeclaredResult result{name, static_cast<ResultKind>(found - RESULT_KINDS.begin()), {}, "", {}, true, false, {}};
  if (!document.is_null("outputs")) result.outputs = document.texts("outputs");
  for (const std::string& axis : axes.keys()) result.axes.push_back(axes.integer(axis, 1, MAX_SIZE));
  if (!document.is_null("positions")) result.positions = document.text("positions", inputs);
  if (!document.is_null("labels")) result.labels = document.texts("labels");
  for (const std::string& setting : settings.keys()) {
    const bool holds = read_setting(document, settings, setting);
    if (setting == "several") result.several = holds;
    if (setting == "each") result.words = settings.fields()[setting] == "word";
  }
  if (!document.is_null("tokenizer")) result.tokenizer = document.text("tokenizer");
  if (!document.is_null("of")) result.of = document.text("of", inputs);
  if (result.kind == ResultKind::ctc) result.beam_size = read_beam_size(document, settings);
  return result;
}

Manifest read_engine(const Document& document) {
  Manifest manifest{};
  manifest.task = document.text("task", names_of_tasks());
  manifest.inputs = read_inputs(document.section("inputs"));
  check_names(document, manifest);
  const std::vector<std::string> names = names_of(manifest.inputs);
  const Document results = document.section("results");
  for (const std::string& name : results.keys()) {
    manifest.results.push_back(read_result(results.section(name), name, names));
  }
  check_results(document, manifest);
  read_rest(document, manifest);
  manifest.given = given_inputs(manifest);
  return manifest;
}

// The size and sha256 of a file.
FileRecord record_file(const fs::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw invalid_engine(std::string("cannot be read: ") + std::strerror(errno), path.string(), COPY);
  Sha256 hash;
  FileRecord record{0, ""};
  std::vector<char> block(1 << 20);
  ssize_t size = 0;
  while ((size = read(file, block.data(), block.size())) > 0) {
    hash.add(block.data(), static_cast<size_t>(size));
    record.bytes += size;
  }
  const int error = errno;
  close(file);
  if (size < 0) throw invalid_engine(std::string("cannot be read: ") + std::strerror(error), path.string(), COPY);
  record.sha256 = hash.hex();
  return record;
}

void check_file(const fs::path& folder, const std::string& name, const FileRecord& record, bool hashes) {
  const fs::path path = folder / name;
  std::error_code none;
  const fs::path real = fs::weakly_canonical(path, none);
  if (std::mismatch(folder.begin(), folder.end(), real.begin(), real.end()).first != folder.end()) {
    throw invalid_engine("a link out of the engine's folder", path.string(), "copy the file itself here");
  }
  if (!fs::is_regular_file(path, none)) {
    throw invalid_engine("this file of the engine is missing", path.string(), COPY);
  }
  const auto found = static_cast<int64_t>(fs::file_size(path, none));
  if (found != record.bytes) {
    throw invalid_engine("has " + grouped(found) + " bytes; " + grouped(record.bytes) + " were written", path.string(),
                         COPY);
  }
  if (hashes && record_file(path).sha256 != record.sha256) throw invalid_engine(CHANGED, path.string(), COPY);
}

}  // namespace

bool SpecialTokens::has(int64_t id) const {
  return id == pad || id == unknown || id == begin || std::count(end.begin(), end.end(), id) > 0;
}

bool SpecialTokens::usual() const {
  SpecialTokens ended = *this;
  ended.ends = true;
  return ended == SpecialTokens{};
}

const char* Input::kind_name() const { return KINDS[static_cast<size_t>(kind)].c_str(); }

const char* DeclaredResult::kind_name() const { return RESULT_KINDS[static_cast<size_t>(kind)].c_str(); }

const Input& Manifest::input(const std::string& wanted) const {
  return *std::find_if(inputs.begin(), inputs.end(), [&](const Input& input) { return input.name == wanted; });
}

const Input& Manifest::written() const { return input(results.at(0).name); }

const DeclaredResult* Manifest::labels() const {
  for (const DeclaredResult& result : results) {
    if (result.kind == ResultKind::labels) return &result;
  }
  return nullptr;
}

bool Manifest::labels_words() const {
  return std::any_of(results.begin(), results.end(), [](const DeclaredResult& result) {
    return result.kind != ResultKind::text && !result.positions.empty() && result.words;
  });
}

bool Manifest::has_results_of_text() const {
  return std::any_of(results.begin(), results.end(), [](const DeclaredResult& result) { return !result.of.empty(); });
}

bool Manifest::has_file(const std::string& wanted) const {
  return std::any_of(files.begin(), files.end(), [&](const auto& file) { return file.first == wanted; });
}

bool Manifest::aligns() const { return task == "translation" && has_file(ALIGNMENTS); }

bool Manifest::streams() const { return task == "language_model" && has_file(PROMPT) && has_file(CONTINUE); }

Manifest read_manifest(const fs::path& folder) {
  std::error_code none;
  if (!fs::is_directory(folder, none)) {
    throw invalid_engine(fs::exists(folder, none) ? "not a folder" : "no such folder", folder.string(), BUILD);
  }
  const fs::path path = folder / "engine.json";
  if (!fs::is_regular_file(path, none)) {
    throw invalid_engine("not an engine: it has no engine.json", folder.string(), BUILD);
  }
  const Document document = read_document(path, MANIFEST_BYTES);
  const int64_t format = document.integer("format", 1);
  if (format != FORMAT) {
    throw invalid_engine(
        "this engine has format " + std::to_string(format) + "; this xformc reads format " + std::to_string(FORMAT),
        path.string(), OTHER_VERSION);
  }
  if (document.text("checksum") != checksum(document.fields())) throw invalid_engine(CHANGED, path.string(), COPY);
  const Manifest manifest = read_engine(document);
  std::vector<std::string> needed = {"model.onnx", manifest.has_results_of_text() ? "results.onnx" : ""};
  for (const DeclaredResult& result : manifest.results) needed.push_back(result.tokenizer);
  for (const Input& input : manifest.inputs) needed.push_back(input.tokenizer);
  for (const std::string& name : needed) {
    if (name.empty()) continue;
    if (!manifest.has_file(name)) throw invalid_engine(name + " is not listed in files", path.string(), COPY);
  }
  return manifest;
}

void check_files(const fs::path& folder, const Manifest& manifest, bool hashes) {
  const fs::path whole = fs::canonical(folder);
  for (const auto& [name, record] : manifest.files) check_file(whole, name, record, hashes);
}

}  // namespace xformc
