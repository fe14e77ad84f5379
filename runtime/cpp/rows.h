// Rows, which are examples as arrays, and their padding into batches for a model.
#pragma once

#include <cstdint>
#include <vector>

#include "include/xformc.h"
#include "manifest.h"
#include "session.h"
#include "tokenizer.h"
#include "words.h"

namespace xformc {

// One input of one example: ids [positions] for tokens, otherwise numbers: vectors [positions, size], values [..], or
// edges [positions, positions] as 0 and 1.
struct Field {
  Ids ids;
  std::vector<float> numbers;
  int64_t positions = 0;  // of tokens, vectors and edges
};

// One example, with a field for each input of the engine that it feeds.
struct Row {
  std::vector<Field> fields = {};
  int64_t seed = 0;  // of sampling; for examples, the number of the row, to which that of the call is added
  std::vector<Words> words = {}, target_words = {};  // of alignments: those of each token of the source and of a text

  int64_t longest() const;  // the largest number of positions of its tokens and vectors
};

using Rows = std::vector<const Row*>;

// Arrays for a model, and the memory behind them.
struct Batch {
  std::vector<Feed> feeds;
  std::vector<std::vector<int64_t>> integers;
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<char>> booleans;

  void add(std::string name, std::vector<int64_t> values, std::vector<int64_t> shape);
  void add(std::string name, std::vector<float> values, std::vector<int64_t> shape);
  void add(std::string name, std::vector<char> values, std::vector<int64_t> shape);
};

// Adds an input for these rows, of which each has it as its field `index`: the batch first, shorter rows padded at the
// end with 0, tokens with `fill`. Vectors with positions of their own have a second input, NAME_mask, which is false
// for padding.
void stack(Batch& batch, const std::string& name, const Input& input, size_t index, const Rows& rows, int64_t fill);

// Adds the options of sampling, and a random seed for each row.
void add_sampling(Batch& batch, const SampleOptions& options, std::vector<int64_t> seeds);

// The examples in arrays, whose layout is described in docs/runtime.md. Throws Failure for an array that is missing,
// unknown, or has the wrong type, shape or values.
std::vector<Row> read_rows(const std::vector<Input>& inputs, const xformc_array* arrays, size_t count);

}  // namespace xformc
