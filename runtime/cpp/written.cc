#include "written.h"

#include <algorithm>

#include "failure.h"

namespace xformc {

Written::Written(std::vector<Output> outputs, int64_t rows, int64_t ranks)
    : outputs_(std::move(outputs)), ranks_(std::max<int64_t>(1, ranks)) {
  std::vector<int64_t> per_text = {rows};
  if (ranks > 0) per_text.push_back(ranks);
  std::vector<int64_t> per_token = per_text;
  per_token.push_back(-1);
  tokens_ = outputs_[0].integers(per_token);
  lengths_ = outputs_[1].integers(per_text);
  scores_ = outputs_[2].floats(per_text);
  longest_ = per_token.back();
  if (std::any_of(lengths_, lengths_ + rows * ranks_, [&](int64_t n) { return n < 0 || n > longest_; })) {
    throw Failure(XFORMC_RUN_FAILED, "the output lengths has a length that its tokens do not have", "", REBUILD);
  }
}

Ids Written::tokens(int64_t row, int64_t rank) const {
  const int64_t text = row * ranks_ + rank;
  return {tokens_ + text * longest_, tokens_ + text * longest_ + lengths_[text]};
}

}  // namespace xformc
