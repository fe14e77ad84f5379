// The automaton that the texts of a sentence match (docs/search.md): which tokens may follow each hypothesis.
#pragma once

#include <algorithm>
#include <limits>

#include "kernel.h"
#include "search_edits.h"

namespace xformc {

class Automaton {
 public:
  Automaton() = default;  // of any text

  // The inputs from `index` on: the state after each state and token [states, vocabulary], int32, below 0 for tokens that
  // may not follow; the fewest tokens from each state to one in which a text may end [states]; the states in which texts
  // begin [rows], below 0 for any text; and the most tokens of the texts of each sentence [batch]. The first three may be
  // absent. The texts are those of `edits`. The
  // tokens of `prefix` are not read, unless the input before `index` makes them likelier instead of forced.
  Automaton(const Ort::KernelContext& context, size_t index, size_t prefix, int64_t pad, int64_t vocabulary,
            int64_t batch, int64_t beam, const Sentences& sentences, const Edits& edits)
      : vocabulary_(vocabulary) {
    if (context.GetInputCount() <= index + 3 || !context.GetInput(index + 3)) return;
    for (const size_t input : {prefix, index})
      require(context.GetInput(input), "an automaton needs a prefix and its states");
    const Shape shape = shape_of(context.GetInput(index));
    require(shape.size() == 2, "the automaton is no table");
    states_ = shape[0];
    if (states_ == 0) return;
    require(shape[1] == vocabulary, "the automaton has another vocabulary");
    require(edits.text(0) != nullptr, "an automaton needs the tokens of the hypotheses");
    next_ = context.GetInput(index).GetTensorData<int32_t>();
    needs_ = optional_input<int64_t>(context, index + 1, states_, "the automaton lacks the needs of its states");
    const int64_t* limit =
        optional_input<int64_t>(context, index + 3, batch, "there must be a limit for each sentence");
    require(needs_ != nullptr && limit != nullptr, "the automaton lacks the needs of its states");
    Option<int64_t> start(NONE);
    Option<float> bias(0);
    start.read(context, index + 2, sentences);
    bias.read(context, index - 1, sentences);
    const Ort::ConstValue begun = context.GetInput(prefix);
    const Shape given = shape_of(begun);
    require(given.size() == 2 && given[0] == batch, "prefix and scores do not fit");
    const int64_t* tokens = begun.GetTensorData<int64_t>();
    for (int64_t row = 0; row < batch * beam; ++row) {
      const int64_t sentence = row / beam, first = start.of(sentences, sentence);
      const int64_t* own = tokens + sentence * given[1];
      const int64_t skipped = bias.of(sentences, sentence) > 0 ? 0 : std::find(own, own + given[1], pad) - own;
      Row found{first < 0, nullptr, std::max<int64_t>(limit[sentence], 0) - edits.length(row)};
      if (first >= 0)
        found.next = after(first, edits.text(row), std::min(1 + skipped, edits.length(row)), edits.length(row));
      rows_.push_back(found);
    }
  }

  // Whether some tokens may not follow a hypothesis.
  bool restricts(int64_t row) const { return !rows_.empty() && !rows_[static_cast<size_t>(row)].free; }

  // Whether a token may follow a hypothesis, so that a text can still end within the limit.
  bool allows(int64_t row, int64_t token) const {
    if (!restricts(row)) return true;
    const Row& own = rows_[static_cast<size_t>(row)];
    return own.next != nullptr && leads_on(own, token);
  }

  // Copies the logits of `count` tokens from the token `first` on, -inf for those that may not follow a hypothesis.
  void mask(int64_t row, int64_t first, int64_t count, const float* logits, float* masked) const {
    const Row& own = rows_[static_cast<size_t>(row)];
    for (int64_t i = 0; i < count; ++i) {
      const bool allowed = own.next != nullptr && leads_on(own, first + i);
      masked[i] = allowed ? logits[i] : -std::numeric_limits<float>::infinity();
    }
  }

 private:
  static constexpr int64_t NONE = -1;

  struct Row {
    bool free;            // any token may follow
    const int32_t* next;  // the state after each token; null if none may follow
    int64_t left;         // how many more tokens may follow the next one
  };

  bool leads_on(const Row& own, int64_t token) const {
    const int32_t state = own.next[token];
    return state >= 0 && state < states_ && needs_[state] <= own.left;
  }

  // The states after a text and one more token, from a state before the token `begin` of the text on.
  const int32_t* after(int64_t state, const int64_t* text, int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end && state >= 0 && state < states_; ++i) {
      state = text[i] >= 0 && text[i] < vocabulary_ ? next_[state * vocabulary_ + text[i]] : NONE;
    }
    return state >= 0 && state < states_ ? next_ + state * vocabulary_ : nullptr;
  }

  int64_t vocabulary_ = 0, states_ = 0;
  const int32_t* next_ = nullptr;
  const int64_t* needs_ = nullptr;
  std::vector<Row> rows_;  // of each hypothesis; empty if there is no automaton
};

}  // namespace xformc
