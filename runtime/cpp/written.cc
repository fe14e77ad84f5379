#include "written.h"

#include <algorithm>

namespace xformc {

Written::Written(const Output* outputs, int64_t rows, int64_t ranks, int64_t longest, int64_t vocabulary)
    : ranks_(std::max<int64_t>(1, ranks)) {
  std::vector<Size> per_text = {rows};
  if (ranks > 0) per_text.emplace_back(ranks);
  std::vector<Size> per_token = per_text;
  per_token.push_back(Size::up_to(longest));
  std::vector<int64_t> found;
  tokens_ = outputs[0].integers(per_token, found, vocabulary);
  width_ = found.back();
  lengths_ = outputs[1].integers(per_text, found, longest + 1);
  scores_ = outputs[2].floats(per_text, found);
}

Ids Written::tokens(int64_t row, int64_t rank) const {
  const int64_t text = row * ranks_ + rank;
  const int64_t* first = tokens_ + text * width_;
  return {first, first + std::min(lengths_[text], width_)};
}

}  // namespace xformc
