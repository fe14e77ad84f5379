// The outputs of a model that generates text, which are first.
#pragma once

#include <vector>

#include "output.h"
#include "tokenizer.h"

namespace xformc {

// The tokens [rows, ranks, length], lengths [rows, ranks] and scores [rows, ranks] of one run.
class Written {
 public:
  // Checks the outputs of a run of `rows` rows with `ranks` texts each, of at most `longest` tokens; 0 ranks are outputs
  // without that axis. Throws Failure for other shapes, and for tokens or lengths out of range.
  Written(std::vector<Output> outputs, int64_t rows, int64_t ranks, int64_t longest, int64_t vocabulary);

  Ids tokens(int64_t row, int64_t rank) const;
  float score(int64_t row, int64_t rank) const { return scores_[row * ranks_ + rank]; }
  int64_t ranks() const { return ranks_; }
  const Output& other(size_t index) const { return outputs_[3 + index]; }  // of a further result

 private:
  std::vector<Output> outputs_;
  int64_t ranks_, width_;
  const int64_t* tokens_;
  const int64_t* lengths_;
  const float* scores_;
};

}  // namespace xformc
