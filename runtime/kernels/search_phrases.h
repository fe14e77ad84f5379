// The phrases that the texts of a sentence must have (docs/search.md), and how much of each a text has.
#pragma once

#include <algorithm>

#include "kernel.h"

namespace xformc {

class Phrases {
 public:
  // The input `index` are the tokens [rows, phrases, any], padded with -1; it may be absent. `sentences` says which row
  // each sentence has.
  Phrases(const Context& context, size_t index, const Sentences& sentences) : sentences_(sentences) {
    if (!context.input(index)) return;
    const Value& value = context.input(index);
    const Shape shape = value.shape;
    require(shape.size() == 3, "the phrases are no lists");
    sentences.check(shape[0]);
    rows_ = shape[0];
    count_ = shape[1];
    longest_ = shape[2];
    tokens_ = value.as<int64_t>();
    any_ = std::any_of(tokens_, tokens_ + times(rows_, times(count_, longest_)), [](int64_t one) { return one >= 0; });
  }

  bool any() const { return any_; }
  bool any(int64_t sentence) const {
    return any_ && lengths(sentence) != std::vector<int64_t>(static_cast<size_t>(count_));
  }

  // How many tokens of each phrase a text has: all, if the phrase occurs in it, or else those that it ends with.
  std::vector<int64_t> standing(int64_t sentence, const int64_t* text, int64_t length) const {
    std::vector<int64_t> result(static_cast<size_t>(count_));
    for (int64_t i = 0; i < count_; ++i) {
      const auto [first, last] = phrase(sentence, i);
      const bool occurs = std::search(text, text + length, first, last) != text + length;
      int64_t tokens = last - first;
      while (!occurs && tokens > 0) {
        --tokens;
        if (tokens <= length && std::equal(first, first + tokens, text + length - tokens)) break;
      }
      result[static_cast<size_t>(i)] = tokens;
    }
    return result;
  }

  // The tokens that continue the phrases which a text does not have, in order.
  std::vector<int64_t> next(int64_t sentence, const std::vector<int64_t>& standing) const {
    std::vector<int64_t> result;
    for (int64_t i = 0; i < count_; ++i) {
      const auto [first, last] = phrase(sentence, i);
      const int64_t has = standing[static_cast<size_t>(i)];
      if (has < last - first) result.push_back(first[has]);
    }
    std::sort(result.begin(), result.end());
    result.erase(std::unique(result.begin(), result.end()), result.end());
    return result;
  }

  // The bank of a text: the tokens of the phrases that it has, and the most of one that it has not.
  int64_t bank(int64_t sentence, const std::vector<int64_t>& standing) const {
    int64_t whole = 0, most = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const auto [first, last] = phrase(sentence, i);
      const int64_t has = standing[static_cast<size_t>(i)];
      if (has == last - first) {
        whole += has;
      } else {
        most = std::max(most, has);
      }
    }
    return whole + most;
  }

  // Whether a text has all phrases.
  bool all(int64_t sentence, const std::vector<int64_t>& standing) const { return standing == lengths(sentence); }

 private:
  std::pair<const int64_t*, const int64_t*> phrase(int64_t sentence, int64_t i) const {
    const int64_t* first = tokens_ + (sentences_.row(sentence, rows_) * count_ + i) * longest_;
    return {first, std::find_if(first, first + longest_, [](int64_t one) { return one < 0; })};
  }

  std::vector<int64_t> lengths(int64_t sentence) const {
    std::vector<int64_t> result(static_cast<size_t>(count_));
    for (int64_t i = 0; i < count_; ++i) {
      const auto [first, last] = phrase(sentence, i);
      result[static_cast<size_t>(i)] = last - first;
    }
    return result;
  }

  Sentences sentences_;
  const int64_t* tokens_ = nullptr;
  int64_t rows_ = 1, count_ = 0, longest_ = 0;
  bool any_ = false;
};

}  // namespace xformc
