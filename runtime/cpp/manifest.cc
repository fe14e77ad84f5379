#include "manifest.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "document.h"
#include "failure.h"
#include "numbers.h"
#include "sha256.h"
#include "unicode.h"

namespace xformc {
namespace {

namespace fs = std::filesystem;

constexpr int64_t FORMAT = 3;
constexpr size_t MANIFEST_BYTES = 1 << 20;
constexpr int64_t FILE_BYTES = int64_t{1} << 40;
constexpr int64_t MAX_SIZE = int64_t{1} << 31;
constexpr const char* BUILD = "an engine is a folder written by `xformc build RUN -o ENGINE`";

const std::vector<std::string> KINDS = {"tokens", "vectors", "values", "edges"};
const std::vector<std::string> TARGETS = {"portable", "cpu", "native", "cuda", "tensorrt"};
const std::vector<std::string> PRECISIONS = {"float32", "float16", "bfloat16", "int8", "int4", "float8"};
const std::vector<std::string> TASKS = {"translation", "language_model", "tagging", "classification"};
const std::vector<std::string> BUILDERS = {"tensorrt", "tensorrt_rtx"};

// The inputs of the tasks that generate text; the others label any inputs.
const std::map<std::string, std::vector<std::string>> WRITTEN = {{"translation", {"source", "target"}},
                                                                 {"language_model", {"text"}}};

std::vector<std::string> names_of(const std::vector<Input>& inputs) {
  std::vector<std::string> names;
  for (const Input& input : inputs) names.push_back(input.name);
  return names;
}

void check_tokens(const Document& document) {
  const std::pair<const char*, int64_t> special[] = {
      {"pad", PAD}, {"unknown", UNKNOWN}, {"begin", BEGIN}, {"end", END}};
  bool same = true;
  for (const auto& [name, id] : special) same = document.integer(name, 0, MAX_SIZE) == id && same;
  if (!same) {
    throw invalid_engine("the special tokens must be pad 0, unknown 1, begin 2, end 3", document.place(), COPY);
  }
}

Input read_input(const Document& document, const std::string& name, const std::vector<std::string>& names) {
  const std::string kind = document.text("kind", KINDS);
  const auto index = std::find(KINDS.begin(), KINDS.end(), kind) - KINDS.begin();
  Input input{name, static_cast<Kind>(index), 0, {}, "", std::nullopt, ""};
  const Document axes = document.section("axes");
  if (input.kind == Kind::tokens) input.vocabulary = document.integer("vocabulary", 4, MAX_SIZE);
  for (const std::string& axis : axes.keys()) input.axes.emplace_back(axis, axes.integer(axis, 1, MAX_SIZE));
  if (input.kind == Kind::edges) {
    input.of = document.text("of", names);
  } else if (document.has("of") && !document.is_null("of")) {
    throw invalid_engine(
        "the input " + name + " lies along " + document.text("of", names) + ", which libxformc does not support",
        document.place(), "run this engine in Python");
  }
  if (!document.is_null("longest")) input.longest = document.integer("longest", 1);
  if (input.kind == Kind::tokens && !document.is_null("tokenizer")) input.tokenizer = document.text("tokenizer");
  return input;
}

std::vector<Input> read_inputs(const Document& document) {
  std::vector<Input> inputs;
  const std::vector<std::string> names = document.keys();
  for (const std::string& name : names) inputs.push_back(read_input(document.section(name), name, names));
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

SearchOptions read_search(const Document& document, const char* beam_size) {
  SearchOptions options;
  options.beam_size = document.integer(beam_size, 1);
  options.n_best = document.integer("n_best", 1, options.beam_size);
  options.length_penalty = document.number("length_penalty", -MAX_PENALTY, MAX_PENALTY);
  options.max_length_factor = document.number("max_length_factor", 0, MAX_FACTOR);
  options.max_length_offset = document.integer("max_length_offset", 0, MAX_OFFSET);
  return options;
}

SampleOptions read_sampling(const Document& document) {
  SampleOptions options;
  options.temperature = document.number("temperature", 0, MAX_TEMPERATURE);
  options.top_k = document.integer("top_k", 0);
  options.top_p = document.number("top_p", 0, 1);
  options.max_new_tokens = document.integer("max_new_tokens", 1);
  return options;
}

// What all formats have.
void read_common(const Document& document, Manifest& manifest) {
  document.text("xformc");
  manifest.name = document.text("name");
  manifest.target = document.text("target", TARGETS);
  manifest.precision = document.text("precision", PRECISIONS);
  document.integer("parameters", 0);
  document.text("weights");
  manifest.files = read_files(document.section("files"));
}

// Format 1: translation only.
void read_format_1(const Document& document, Manifest& manifest) {
  const Document vocabulary = document.section("vocabulary");
  const bool text = !document.is_null("tokenizer");
  for (const std::string side : {"source", "target"}) {
    Input input{side, Kind::tokens, vocabulary.integer(side, 4, MAX_SIZE), {}, "", std::nullopt, ""};
    const std::string longest = "max_" + side + "_length";
    if (!document.is_null(longest)) input.longest = document.integer(longest, 1);
    if (text) input.tokenizer = document.section("tokenizer").text(side);
    manifest.inputs.push_back(input);
  }
  manifest.task = document.text("task", {"translation"});
  manifest.search = read_search(document.section("defaults"), "beam_width");
  read_common(document, manifest);
}

// Format 2 is format 3 with beam_size called beam_width.
void read_described(const Document& document, Manifest& manifest) {
  manifest.task = document.text("task", TASKS);
  manifest.inputs = read_inputs(document.section("inputs"));
  const auto written = WRITTEN.find(manifest.task);
  const std::vector<std::string> names = names_of(manifest.inputs);
  if (!document.is_null("labels")) manifest.labels = document.texts("labels");
  if (!document.is_null("positions")) manifest.positions = document.text("positions", names);
  if (manifest.labels.empty() != (written != WRITTEN.end()) ||
      manifest.positions.empty() != (manifest.task != "tagging")) {
    throw invalid_engine("the labels and positions do not fit the task " + manifest.task, document.place(), COPY);
  }
  const bool tokens = std::all_of(manifest.inputs.begin(), manifest.inputs.end(),
                                  [](const Input& input) { return input.kind == Kind::tokens; });
  if (names.empty() ||
      (written != WRITTEN.end() &&
       (!tokens || !std::is_permutation(names.begin(), names.end(), written->second.begin(), written->second.end())))) {
    throw invalid_engine("the inputs do not fit the task " + manifest.task + ": " + joined(names), document.place(),
                         COPY);
  }
  if (manifest.task == "translation") {
    manifest.search = read_search(document.section("defaults"), manifest.format == 2 ? "beam_width" : "beam_size");
  }
  if (manifest.task == "language_model") manifest.sampling = read_sampling(document.section("defaults"));
  read_common(document, manifest);
  check_others(document);
  if (document.has("operators")) manifest.operators = document.integer("operators", 1);
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

const char* Input::kind_name() const { return KINDS[static_cast<size_t>(kind)].c_str(); }

const Input& Manifest::input(const std::string& wanted) const {
  return *std::find_if(inputs.begin(), inputs.end(), [&](const Input& input) { return input.name == wanted; });
}

bool Manifest::has_file(const std::string& wanted) const {
  return std::any_of(files.begin(), files.end(), [&](const auto& file) { return file.first == wanted; });
}

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
  Manifest manifest{};
  manifest.format = document.integer("format", 1);
  if (manifest.format > FORMAT) {
    throw invalid_engine("engine format " + std::to_string(manifest.format) +
                             " is newer than this xformc, which reads up to " + std::to_string(FORMAT),
                         path.string(), "upgrade: pip install --upgrade xformc");
  }
  if (document.text("checksum") != checksum(document.fields())) throw invalid_engine(CHANGED, path.string(), COPY);
  check_tokens(document.section("tokens"));
  (manifest.format == 1 ? read_format_1 : read_described)(document, manifest);
  std::vector<std::string> needed = {"model.onnx"};
  for (const Input& input : manifest.inputs) {
    if (!input.tokenizer.empty()) needed.push_back(input.tokenizer);
  }
  for (const std::string& name : needed) {
    if (!manifest.has_file(name)) throw invalid_engine(name + " is not listed in files", path.string(), COPY);
  }
  return manifest;
}

void check_files(const fs::path& folder, const Manifest& manifest, bool hashes) {
  const fs::path whole = fs::canonical(folder);
  for (const auto& [name, record] : manifest.files) check_file(whole, name, record, hashes);
}

}  // namespace xformc
