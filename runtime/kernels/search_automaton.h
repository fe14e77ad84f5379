// What the texts of a sentence match (docs/search.md), an automaton or the rules of timestamps: which tokens may follow.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>

#include "kernel.h"
#include "search_edits.h"
#include "search_times.h"

namespace xformc {

class Automaton {
 public:
  Automaton() = default;  // of any text

  // The inputs from `index` on: the state after each state and token [states, vocabulary], int32, below 0 for tokens that
  // may not follow; the fewest tokens from each state to one in which a text may end [states]; the states in which texts
  // begin [rows], below 0 for any text, or TIMED; and the most tokens of the texts of each sentence [batch]. The first
  // three may be absent. The texts are those of `edits`. The tokens of `prefix` are not read, unless the input before
  // `index` makes them likelier instead of forced.
  Automaton(const Context& context, size_t index, size_t prefix, int64_t pad, int64_t vocabulary, int64_t batch,
            int64_t beam, const Sentences& sentences, const Edits& edits, const Times& times)
      : vocabulary_(vocabulary) {
    if (!context.input(index + 3)) return;
    for (const size_t input : {prefix, index})
      require(context.input(input), "an automaton needs a prefix and its states");
    const Shape shape = context.input(index).shape;
    require(shape.size() == 2, "the automaton is no table");
    states_ = shape[0];
    Option<int64_t> start(NONE);
    start.read(context, index + 2, sentences);
    bool timed = false;
    for (int64_t i = 0; times.known() && i < batch; ++i) timed |= start.of(sentences, i) == TIMED;
    if (states_ == 0 && !timed) return;
    require(shape[1] == vocabulary, "the automaton has another vocabulary");
    require(edits.text(0) != nullptr, "an automaton needs the tokens of the hypotheses");
    next_ = context.input(index).as<int32_t>();
    needs_ = optional_input<int64_t>(context, index + 1, states_, "the automaton lacks the needs of its states");
    const int64_t* limit =
        optional_input<int64_t>(context, index + 3, batch, "there must be a limit for each sentence");
    require((states_ == 0 || needs_ != nullptr) && limit != nullptr, "the automaton lacks the needs of its states");
    Option<float> bias(0);
    bias.read(context, index - 1, sentences);
    const Value& begun = context.input(prefix);
    const Shape given = begun.shape;
    require(given.size() == 2 && given[0] == batch, "prefix and scores do not fit");
    const int64_t* tokens = begun.as<int64_t>();
    for (int64_t row = 0; row < batch * beam; ++row) {
      const int64_t sentence = row / beam, first = start.of(sentences, sentence);
      const int64_t* own = tokens + sentence * given[1];
      const int64_t skipped = bias.of(sentences, sentence) > 0 ? 0 : std::find(own, own + given[1], pad) - own;
      const int64_t* text = edits.text(row);
      const int64_t length = edits.length(row), begin = std::min(1 + skipped, length);
      Row found{first < 0, nullptr, std::max<int64_t>(limit[sentence], 0) - length, {}};
      if (first >= 0) found.next = after(first, text, begin, length);
      if (first == TIMED && times.known()) {
        found.free = false;
        found.times.emplace(times, text + begin, length - begin, vocabulary);
      }
      rows_.push_back(found);
    }
  }

  // Whether some tokens may not follow a hypothesis.
  bool restricts(int64_t row) const { return !rows_.empty() && !rows_[static_cast<size_t>(row)].free; }

  // The times that may follow a hypothesis and the rule that chooses between them and text; null without timestamps.
  const TimedRow* times(int64_t row) const {
    return rows_.empty() || !rows_[static_cast<size_t>(row)].times ? nullptr : &*rows_[static_cast<size_t>(row)].times;
  }

  // Whether any hypothesis has timestamps.
  bool any_times() const {
    return std::any_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.times.has_value(); });
  }

  // Whether a token may follow a hypothesis, so that a text can still end within the limit; times are left out.
  bool allows(int64_t row, int64_t token) const {
    return !restricts(row) || allows(rows_[static_cast<size_t>(row)], token);
  }

  // Copies the logits of `count` tokens from the token `first` on, -inf for those that are not allowed.
  void mask(int64_t row, int64_t first, int64_t count, const float* logits, float* masked) const {
    const Row& own = rows_[static_cast<size_t>(row)];
    for (int64_t i = 0; i < count; ++i) {
      masked[i] = allows(own, first + i) ? logits[i] : -std::numeric_limits<float>::infinity();
    }
  }

 private:
  static constexpr int64_t NONE = -1, TIMED = -2;

  struct Row {
    bool free;            // any token may follow
    const int32_t* next;  // the state after each token; null if none may follow
    int64_t left;         // how many more tokens may follow the next one
    std::optional<TimedRow> times;
  };

  bool allows(const Row& own, int64_t token) const {
    if (own.times) return own.times->allows_text(token);
    return own.next != nullptr && leads_on(own, token);
  }

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
  std::vector<Row> rows_;  // of each hypothesis; empty if any text may be written
};

}  // namespace xformc
