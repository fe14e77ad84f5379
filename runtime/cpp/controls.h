// The options of beam search that some engines lack, one row each, and the presets of options.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "document.h"
#include "include/xformc.h"

namespace xformc {

// A number from low to high, or one of the words, for each of which the model is given a number. The caller's field is
// the pointer that is not null.
struct Control {
  const char* name;
  bool is_integer;  // whether the model's input is one
  double low, high;
  double absent;  // what a search does that lacks the input
  std::vector<std::pair<const char*, double>> words;
  int64_t xformc_search_options::* count;
  double xformc_search_options::* measure;
  const char* xformc_search_options::* word;
};

constexpr const char* BEAM_GROUPS = "beam_groups";
constexpr const char* COVERAGE_PENALTY = "coverage_penalty";
constexpr const char* PREFIX_BIAS = "prefix_bias";

// In the order of SearchOptions::controls.
const std::vector<Control>& controls();

// The values in engine.json; none where the engine lacks the input.
std::vector<std::optional<double>> read_controls(const Document& document);

// Writes a value, or the absent one, to the caller's field.
void show(const Control& control, std::optional<double> value, xformc_search_options& options);

// Options that are those of a paper or of another library.
struct Preset {
  const char* name;
  double length_penalty;
  const char *length_penalty_kind, *stop_rule;
  double patience;
};

const std::vector<Preset>& presets();
const Preset& preset_of(const std::string& name);  // throws Failure for another name

// The caller's options, where what is not set is that of the preset that they name. Throws Failure for another name.
xformc_search_options with_preset(xformc_search_options given);

}  // namespace xformc
