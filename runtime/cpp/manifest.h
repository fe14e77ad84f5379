// engine.json: what an engine is, what it needs, and the size and hash of each of its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace xformc {

constexpr int64_t PAD = 0, UNKNOWN = 1, BEGIN = 2, END = 3;  // the ids of special tokens

constexpr double MAX_PENALTY = 100, MAX_FACTOR = 100, MAX_TEMPERATURE = 100;
constexpr int64_t MAX_OFFSET = 100'000, MAX_NEW_TOKENS = 100'000, MAX_TOP_K = 1'000'000;

// Options of the search and of sampling, complete and checked.
struct SearchOptions {
  int64_t beam_size = 1, n_best = 1;
  double length_penalty = 0, max_length_factor = 0;
  int64_t max_length_offset = 0;
};

struct SampleOptions {
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  int64_t max_new_tokens = 1;
};

enum class Kind { tokens, vectors, values, edges };

struct Input {
  std::string name;
  Kind kind;
  int64_t vocabulary;                                 // 0 unless the kind is tokens
  std::vector<std::pair<std::string, int64_t>> axes;  // the sizes of vectors (one) and values
  std::string of;                                     // edges: the input whose positions they join
  std::optional<int64_t> longest;                     // the maximum number of positions
  std::string tokenizer;                              // its file; "" for an input that takes ids only

  const char* kind_name() const;
};

struct FileRecord {
  int64_t bytes;
  std::string sha256;
};

struct Manifest {
  int64_t format;
  std::string name, task, target, precision;
  std::vector<Input> inputs;
  std::vector<std::string> labels;  // empty for tasks without
  std::string positions;            // the input whose positions are labelled; "" for tasks without
  SearchOptions search;             // translation only
  SampleOptions sampling;           // language_model only
  std::vector<std::pair<std::string, FileRecord>> files;  // every file but engine.json
  std::optional<int64_t> operators;                       // the version of xformc's operators in the model

  const Input& input(const std::string& name) const;  // which there must be
  bool has_file(const std::string& name) const;
};

// Reads and checks engine.json of a format that xformc has written. Throws Failure.
Manifest read_manifest(const std::filesystem::path& folder);

// Checks that each file lies inside the folder with its recorded size and, with `hashes`, its sha256. Throws Failure.
void check_files(const std::filesystem::path& folder, const Manifest& manifest, bool hashes);

}  // namespace xformc
