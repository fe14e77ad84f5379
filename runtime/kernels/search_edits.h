// The edits of token scores that docs/search.md defines: tokens that are banned or penalised.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernel.h"

namespace xformc {

// What is done to the score of a token: it is banned, or penalised for the times that the text has it.
struct Edit {
  int64_t token;
  int64_t count;
  bool banned;
};

// The edits of the rows of a step, from the tokens of each hypothesis and the numbers of a call.
class Edits {
 public:
  // The inputs from `first` on are the tokens of each hypothesis [batch, beam, any], the suppressed tokens [any], the
  // length of n-grams that must not repeat, and the penalties for repetition, presence and frequency, all []; none of them
  // is there in older models.
  Edits(const Ort::KernelContext& context, size_t first, int64_t vocabulary, int64_t batch, int64_t beam)
      : vocabulary_(vocabulary) {
    if (context.GetInputCount() <= first + 5 || !context.GetInput(first + 5)) return;
    const Shape shape = shape_of(context.GetInput(first)), list = shape_of(context.GetInput(first + 1));
    require(shape.size() == 3 && shape[0] == batch && shape[1] == beam, "tokens and scores do not fit");
    require(list.size() == 1, "the suppressed tokens are no list");
    tokens_ = context.GetInput(first).GetTensorData<int64_t>();
    length_ = shape[2];
    const int64_t* suppressed = context.GetInput(first + 1).GetTensorData<int64_t>();
    suppressed_.assign(suppressed, suppressed + list[0]);
    for (const int64_t token : suppressed_) require(is_token(token), "a suppressed token is not in the vocabulary");
    ngram_ = std::clamp<int64_t>(single<int64_t>(context, first + 2), 0, length_ + 1);
    repetition_ = single<float>(context, first + 3);
    presence_ = single<float>(context, first + 4);
    frequency_ = single<float>(context, first + 5);
    penalises_ = repetition_ != 1.0f || presence_ != 0.0f || frequency_ != 0.0f;
  }

  bool any() const { return penalises_ || ngram_ > 0 || !suppressed_.empty(); }

  // The edits of a row, by token.
  std::vector<Edit> of(int64_t row) const {
    const int64_t* text = tokens_ + row * length_;
    std::vector<Edit> found;
    for (const int64_t token : suppressed_) found.push_back({token, 0, true});
    if (penalises_) {
      for (int64_t i = 0; i < length_; ++i) {
        if (is_token(text[i])) found.push_back({text[i], 1, false});
      }
    }
    const int64_t before = ngram_ - 1;
    for (int64_t i = 0; ngram_ > 0 && i + before < length_; ++i) {
      const bool repeats = std::equal(text + i, text + i + before, text + length_ - before);
      if (repeats && is_token(text[i + before])) found.push_back({text[i + before], 0, true});
    }
    return merged(std::move(found));
  }

  // The score of a token after its edit.
  float apply(const Edit& edit, float score) const {
    if (edit.banned) return -std::numeric_limits<float>::infinity();
    const float repeated = score < 0 ? score * repetition_ : score / repetition_;
    return repeated - (presence_ + frequency_ * static_cast<float>(edit.count));
  }

 private:
  bool is_token(int64_t token) const { return token >= 0 && token < vocabulary_; }

  static std::vector<Edit> merged(std::vector<Edit> edits) {
    std::sort(edits.begin(), edits.end(), [](const Edit& a, const Edit& b) { return a.token < b.token; });
    size_t size = 0;
    for (const Edit& edit : edits) {
      if (size > 0 && edits[size - 1].token == edit.token) {
        edits[size - 1].count += edit.count;
        edits[size - 1].banned |= edit.banned;
      } else {
        edits[size++] = edit;
      }
    }
    edits.resize(size);
    return edits;
  }

  int64_t vocabulary_;
  const int64_t* tokens_ = nullptr;
  int64_t length_ = 0, ngram_ = 0;
  std::vector<int64_t> suppressed_;
  float repetition_ = 1, presence_ = 0, frequency_ = 0;
  bool penalises_ = false;
};

}  // namespace xformc
