// The command line of xformc-run: the options of `xformc translate`, `generate`, `transcribe` and `predict`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../include/xformc.hpp"

namespace run {

struct Arguments {
  std::string engine, input = "-", output = "-";
  std::vector<std::string> files;  // the examples, instead of lines of the input
  std::string align_with;          // the file of translations to align with the lines
  bool scores = false, json = false, token_scores = false, verbose = false, help = false, version = false;
  bool align = false, attention = false, json_input = false;
  std::optional<bool> stream;
  xformc::LoadOptions load;
  xformc::SearchOptions search;
  xformc::SampleOptions sampling;
  xformc::RunOptions batches;
  std::vector<std::pair<std::string, std::vector<std::string>>> tasks;  // options that were given, and their tasks
};

// Throws Error for a wrong command line.
Arguments parse(const std::vector<std::string>& words);

// Throws Error if files or an option were given that this engine does not take.
void check_task(const Arguments& arguments, const xformc::Engine& engine);

// The text of an error with options in place of the names that they have in the API, such as beam_size.
std::string as_typed(const std::string& text);

std::string help();

}  // namespace run
