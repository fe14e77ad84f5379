#include "controls.h"

#include <cmath>

#include "failure.h"
#include "manifest.h"

namespace xformc {
namespace {

using Given = xformc_search_options;

std::vector<std::string> words_of(const Control& control) {
  std::vector<std::string> words;
  for (const auto& [word, number] : control.words) words.emplace_back(word);
  return words;
}

std::optional<double> read(const Control& control, const Document& document) {
  if (!document.has(control.name)) return std::nullopt;
  if (control.words.empty()) {
    return control.is_integer ? static_cast<double>(document.integer(control.name, static_cast<int64_t>(control.low),
                                                                     static_cast<int64_t>(control.high)))
                              : document.number(control.name, control.low, control.high);
  }
  const std::string found = document.text(control.name, words_of(control));
  for (const auto& [word, number] : control.words) {
    if (found == word) return number;
  }
  return std::nullopt;
}

}  // namespace

const std::vector<Control>& controls() {
  static const std::vector<Control> found = {
      {"min_length", true, 0, MAX_OFFSET, 0, {}, &Given::min_length, nullptr, nullptr},
      {"length_penalty_kind",
       false,
       0,
       0,
       5,
       {{"gnmt", 5}, {"average", 0}},
       nullptr,
       nullptr,
       &Given::length_penalty_kind},
      {"stop_rule",
       true,
       0,
       0,
       0,
       {{"first", 0}, {"best", 1}, {"complete", 2}, {"shrink", 3}},
       nullptr,
       nullptr,
       &Given::stop_rule},
      {"patience", false, 1, MAX_PATIENCE, 1, {}, nullptr, &Given::patience, nullptr},
      {BEAM_GROUPS, true, 1, MAX_GROUPS, 1, {}, &Given::beam_groups, nullptr, nullptr},
      {"diversity_penalty", false, 0, MAX_PENALTY, 0, {}, nullptr, &Given::diversity_penalty, nullptr},
      {COVERAGE_PENALTY, false, 0, MAX_PENALTY, 0, {}, nullptr, &Given::coverage_penalty, nullptr},
      {PREFIX_BIAS, false, 0, MAX_BIAS, 0, {}, nullptr, &Given::prefix_bias, nullptr},
  };
  return found;
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> found = {
      {"paper", 0.6, "gnmt", "first", 1},    {"huggingface", 1, "average", "best", 1},
      {"fairseq", 1, "average", "first", 1}, {"ctranslate2", 1, "average", "first", 1},
      {"marian", 0, "average", "shrink", 1},
  };
  return found;
}

std::vector<std::optional<double>> read_controls(const Document& document) {
  std::vector<std::optional<double>> found;
  for (const Control& control : controls()) found.push_back(read(control, document));
  return found;
}

void show(const Control& control, std::optional<double> value, xformc_search_options& options) {
  const double number = value.value_or(control.absent);
  if (control.count != nullptr) options.*control.count = static_cast<int64_t>(number);
  if (control.measure != nullptr) options.*control.measure = number;
  for (const auto& [word, other] : control.words) {
    if (other == number) options.*control.word = word;
  }
}

const Preset& preset_of(const std::string& name) {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset;
    names.emplace_back(preset.name);
  }
  throw invalid_argument("preset must be " + joined(names, " or ") + ", not '" + name + "'");
}

xformc_search_options with_preset(xformc_search_options given) {
  if (given.preset == nullptr) return given;
  const Preset& preset = preset_of(given.preset);
  if (std::isnan(given.length_penalty)) given.length_penalty = preset.length_penalty;
  if (given.length_penalty_kind == nullptr) given.length_penalty_kind = preset.length_penalty_kind;
  if (given.stop_rule == nullptr) given.stop_rule = preset.stop_rule;
  if (std::isnan(given.patience)) given.patience = preset.patience;
  return given;
}

}  // namespace xformc
