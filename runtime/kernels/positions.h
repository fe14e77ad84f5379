// The position of each sentence of a step: one for all of them, or one each.
#pragma once

#include "kernel.h"

namespace xformc {

class Positions {
 public:
  Positions(const Context& context, size_t index, int64_t batch) {
    const Value& value = context.input(index);
    const Shape shape = value.shape;
    data_ = value.as<int64_t>();
    by_row_ = shape.size() == 1;
    apart_ = shape.empty() || shape == Shape{1} ? 0 : 1;
    require(apart_ == 0 || shape == Shape{batch}, "there must be one position, or one for each sentence");
    first_ = last_ = batch == 0 && apart_ == 1 ? 0 : data_[0];
    for (int64_t i = 0; i < batch * apart_; ++i) {
      first_ = std::min(first_, data_[i]);
      last_ = std::max(last_, data_[i]);
    }
  }

  int64_t operator[](int64_t sentence) const { return data_[sentence * apart_]; }
  int64_t first() const { return first_; }
  int64_t last() const { return last_; }
  bool by_row() const { return by_row_; }  // whether the input is a vector

 private:
  const int64_t* data_;
  int64_t apart_, first_, last_;
  bool by_row_;
};

}  // namespace xformc
