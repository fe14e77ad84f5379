// The outputs of a model that are texts: those of a search, of sampling, or of an alignment.
#pragma once

#include <vector>

#include "output.h"
#include "tokenizer.h"

namespace xformc {

// The tokens [rows, ranks, length], lengths [rows, ranks] and scores [rows, ranks] of one run.
class Written {
 public:
  // Checks three outputs of a run of `rows` rows with `ranks` texts each, of at most `longest` tokens; 0 ranks are
  // outputs without that axis. They must live as long. Throws Failure for other shapes, and for tokens or lengths out of
  // range.
  Written(const Output* outputs, int64_t rows, int64_t ranks, int64_t longest, int64_t vocabulary);

  Ids tokens(int64_t row, int64_t rank) const;
  float score(int64_t row, int64_t rank) const { return scores_[row * ranks_ + rank]; }
  int64_t ranks() const { return ranks_; }

 private:
  int64_t ranks_, width_;
  const int64_t* tokens_;
  const int64_t* lengths_;
  const float* scores_;
};

}  // namespace xformc
