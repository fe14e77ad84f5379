// The edits of token scores that docs/search.md defines: tokens that are banned or penalised.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "positions.h"

namespace xformc {

// What is done to the score of a token: it is banned, or penalised for the times that the text has it, if it has, or
// neither if it is kept.
struct Edit {
  int64_t token;
  int64_t count;
  bool banned;
  bool kept = false;
};

// The edits of the rows of a step, from the tokens of each hypothesis and the options of each sentence.
class Edits {
 public:
  static constexpr int64_t NONE = -1;  // no token: what pads a list of suppressed ones

  // The inputs from `first` on are the tokens of each hypothesis [batch, beam, any], the suppressed tokens [rows, any],
  // padded with -1, the length of n-grams that must not repeat, and the penalties for repetition, presence and frequency,
  // all [rows], then those of Sentences; all may be absent, and lists of one row without its axis. The input before them is the position of the step: where there is one for each sentence, its tokens end there.
  Edits(const Context& context, size_t first, int64_t vocabulary, int64_t batch, int64_t beam)
      : vocabulary_(vocabulary), beam_(beam), sentences_(context, first + 6, batch) {
    if (!context.input(first + 5)) return;
    for (const size_t input : {first - 1, first, first + 1})
      require(context.input(input), "edits need texts and lists");
    const Shape shape = context.input(first).shape, lists = context.input(first + 1).shape;
    require(shape.size() == 3 && shape[0] == batch && shape[1] == beam, "tokens and scores do not fit");
    require(lists.size() == 1 || lists.size() == 2, "the suppressed tokens are no lists");
    tokens_ = context.input(first).as<int64_t>();
    read_lengths(Positions(context, first - 1, batch), batch, shape[2]);
    suppressed_ = context.input(first + 1).as<int64_t>();
    lists_ = lists.size() == 1 ? 1 : lists[0];
    longest_ = lists.back();
    sentences_.check(lists_);
    for (int64_t i = 0; i < times(lists_, longest_); ++i) {
      require(suppressed_[i] == NONE || is_token(suppressed_[i]), "a suppressed token is not in the vocabulary");
      any_ |= suppressed_[i] != NONE;
    }
    ngram_.read(context, first + 2, sentences_);
    repetition_.read(context, first + 3, sentences_);
    presence_.read(context, first + 4, sentences_);
    frequency_.read(context, first + 5, sentences_);
    any_ |= ngram_.differs(0) || repetition_.differs(1) || presence_.differs(0) || frequency_.differs(0);
  }

  bool any() const { return any_; }

  // The tokens of each hypothesis and their number; null without edits.
  const int64_t* text(int64_t row) const { return tokens_ == nullptr ? nullptr : tokens_ + row * apart_; }
  int64_t length(int64_t row) const { return tokens_ == nullptr ? 0 : lengths_[static_cast<size_t>(row / beam_)]; }

  // The edits of a row, by token; those of `kept` tokens, if any, and none of a token that is `asked` for, if any.
  std::vector<Edit> of(int64_t row, const std::vector<int64_t>& kept = {}, int64_t asked = NONE) const {
    const int64_t length = lengths_[static_cast<size_t>(row / beam_)];
    const int64_t *text = tokens_ + row * apart_, *list = suppressed_ + list_of(row) * longest_;
    std::vector<Edit> found;
    for (const int64_t* token = list; token != list + longest_; ++token) {
      if (*token != NONE) found.push_back({*token, 0, true});
    }
    const Penalties penalties = penalties_of(row);
    if (penalties.repetition != 1.0f || penalties.presence != 0.0f || penalties.frequency != 0.0f) {
      for (int64_t i = 0; i < length; ++i) {
        if (is_token(text[i])) found.push_back({text[i], 1, false});
      }
    }
    const int64_t ngram = std::clamp<int64_t>(ngram_.of(sentences_, row / beam_), 0, length + 1), before = ngram - 1;
    for (int64_t i = 0; ngram > 0 && i + before < length; ++i) {
      const bool repeats = std::equal(text + i, text + i + before, text + length - before);
      if (repeats && is_token(text[i + before])) found.push_back({text[i + before], 0, true});
    }
    for (const int64_t token : kept) {
      require(is_token(token), "a token of a phrase is not in the vocabulary");
      found.push_back({token, 0, false, true});
    }
    if (asked != NONE) found.push_back({asked, 0, false});
    return merged(std::move(found));
  }

  // The score of a token after its edit in a row.
  float apply(const Edit& edit, float score, int64_t row) const {
    if (edit.kept) return score;
    if (edit.banned) return -std::numeric_limits<float>::infinity();
    if (edit.count == 0) return score;
    const Penalties penalties = penalties_of(row);
    const float repeated = score < 0 ? score * penalties.repetition : score / penalties.repetition;
    return repeated - (penalties.presence + penalties.frequency * static_cast<float>(edit.count));
  }

 private:
  // The number of tokens of each sentence's hypotheses, of `all` in a row.
  void read_lengths(const Positions& positions, int64_t batch, int64_t all) {
    apart_ = all;
    lengths_.assign(static_cast<size_t>(batch), all);
    require(!positions.by_row() || (positions.first() >= 0 && positions.last() < all), "tokens end before a position");
    for (int64_t i = 0; positions.by_row() && i < batch; ++i) lengths_[static_cast<size_t>(i)] = positions[i] + 1;
  }

  struct Penalties {
    float repetition, presence, frequency;
  };

  Penalties penalties_of(int64_t row) const {
    const int64_t sentence = row / beam_;
    return {repetition_.of(sentences_, sentence), presence_.of(sentences_, sentence),
            frequency_.of(sentences_, sentence)};
  }

  int64_t list_of(int64_t row) const { return sentences_.row(row / beam_, lists_); }

  bool is_token(int64_t token) const { return token >= 0 && token < vocabulary_; }

  static std::vector<Edit> merged(std::vector<Edit> edits) {
    std::sort(edits.begin(), edits.end(), [](const Edit& a, const Edit& b) { return a.token < b.token; });
    size_t size = 0;
    for (const Edit& edit : edits) {
      if (size > 0 && edits[size - 1].token == edit.token) {
        edits[size - 1].count += edit.count;
        edits[size - 1].banned |= edit.banned;
        edits[size - 1].kept |= edit.kept;
      } else {
        edits[size++] = edit;
      }
    }
    edits.resize(size);
    return edits;
  }

  int64_t vocabulary_, beam_;
  Sentences sentences_;
  const int64_t *tokens_ = nullptr, *suppressed_ = nullptr;
  std::vector<int64_t> lengths_;                 // of each sentence's hypotheses, which are `apart_` apart
  int64_t apart_ = 0, lists_ = 1, longest_ = 0;  // `lists_` of at most `longest_` suppressed tokens
  Option<int64_t> ngram_{0};
  Option<float> repetition_{1}, presence_{0}, frequency_{0};
  bool any_ = false;
};

}  // namespace xformc
