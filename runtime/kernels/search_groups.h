// The groups of diverse beams of a sentence (docs/search.md): each group is a beam of its own.
#pragma once

#include <algorithm>
#include <vector>

#include "kernel.h"

namespace xformc {

class Groups {
 public:
  // The inputs from `index` on are the number of groups [1], the diversity penalty [rows] and the end tokens, [] or [ends];
  // they may be absent. `sentences` says which row each sentence has; `width` is that of the beam.
  Groups(const Context& context, size_t index, const Sentences& sentences, int64_t width, int64_t beam)
      : sentences_(sentences) {
    if (!context.input(index)) return;
    count = single<int64_t>(context, index);
    require(count >= 1 && width % count == 0 && beam % count == 0, "the groups do not divide the beam");
    penalty_.read(context, index + 1, sentences_);
    const Value& ends = context.input(index + 2);
    require(ends, "groups of a beam have no end tokens");
    const int64_t* tokens = ends.as<int64_t>();
    ends_.assign(tokens, tokens + ends.count());
    goes_on_ = width / count;
  }

  int64_t count = 1;

  // What is subtracted from the score of a token that so many hypotheses of earlier groups go on with.
  float penalty(int64_t sentence, int64_t uses) const {
    return penalty_.of(sentences_, sentence) * static_cast<float>(uses);
  }

  // The hypotheses that a group goes on with, of its candidates in order: at most so many, that do not end.
  int64_t goes_on() const { return goes_on_; }
  bool ends(int64_t token) const { return std::find(ends_.begin(), ends_.end(), token) != ends_.end(); }

 private:
  Sentences sentences_;
  Option<float> penalty_{0};
  std::vector<int64_t> ends_;
  int64_t goes_on_ = 0;
};

}  // namespace xformc
