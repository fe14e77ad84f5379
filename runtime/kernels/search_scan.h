// Shared by Candidates and ProjectCandidates: the scan of each row of logits, and the choice for a sentence.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>

#include "attend.h"
#include "kernel.h"
#include "search_automaton.h"
#include "search_edits.h"
#include "search_groups.h"
#include "search_phrases.h"
#include "search_ranking.h"

namespace xformc {

constexpr int64_t ENOUGH_PARTS = 8;  // fewer sentences than this are chosen for by one thread

// The best tokens and the normalizer of each row, from blocks of its logits that do not depend on other work. Different
// threads may scan the parts of a row, which are some of its blocks each.
class Scan {
 public:
  Scan(int64_t vocabulary, int64_t rows, int64_t parts, int64_t most)
      : blocks_(blocks_of(vocabulary)), vocabulary_(vocabulary), parts_(parts), most_(most) {
    highest_.assign(static_cast<size_t>(rows * blocks_), -INFINITY);  // of blocks that are not looked at
    sum_.resize(static_cast<size_t>(rows * blocks_));
    size_.resize(static_cast<size_t>(rows * parts));
    logit_.resize(static_cast<size_t>(rows * parts * most));
    token_.resize(static_cast<size_t>(rows * parts * most));
  }

  static int64_t blocks_of(int64_t vocabulary) { return ceil_div(vocabulary, SCAN_BLOCK); }

  int64_t parts() const { return parts_; }
  int64_t first_block(int64_t part) const { return blocks_ * part / parts_; }
  int64_t tokens_of(int64_t block) const { return std::min(SCAN_BLOCK, vocabulary_ - block * SCAN_BLOCK); }

  // Takes in the logits of a block of a row; the blocks of a part come one after the other. Only tokens that the automaton
  // allows are among the best.
  void look(int64_t row, int64_t part, int64_t block, const float* logits, const Automaton& automaton) {
    look(row, part, block, logits, tokens_of(block), automaton);
  }
  // As if the block had `count` tokens.
  void look(int64_t row, int64_t part, int64_t block, const float* logits, int64_t count, const Automaton& automaton) {
    const int64_t place = row * parts_ + part, i = row * blocks_ + block, first = block * SCAN_BLOCK;
    Best best{most_, size_[place], &logit_[place * most_], &token_[place * most_]};
    if (automaton.restricts(row)) {
      float masked[SCAN_BLOCK], other;
      int64_t token;
      double sum;
      Best unused{1, 0, &other, &token};
      routines_.scan(logits, first, count, unused, highest_[i], sum_[i]);
      automaton.mask(row, first, count, logits, masked);
      routines_.scan(masked, first, count, best, other, sum);
    } else {
      routines_.scan(logits, first, count, best, highest_[i], sum_[i]);
    }
    if (highest_[i] == -INFINITY) sum_[i] = 0;  // of nothing; exp(-inf + inf) is no number
    size_[place] = best.size;
  }

  // A number that the best `most` logits of the blocks of a part that were looked at all reach.
  float reached(int64_t row, int64_t part) const {
    const int64_t place = row * parts_ + part;
    return size_[place] < most_ ? -INFINITY : logit_[place * most_ + most_ - 1];
  }

  // A number that the best `count` logits of a row all reach; `count` is at most `most`.
  float reached_by(int64_t row, int64_t count) const {
    const Ranking<int64_t> all = best(row);
    return all.size() < count ? -INFINITY : all[count - 1].first;
  }

  // The best tokens of a scanned row.
  Ranking<int64_t> best(int64_t row) const {
    Ranking<int64_t> result(most_);
    for (int64_t place = row * parts_; place < (row + 1) * parts_; ++place) {
      for (int64_t i = place * most_; i < place * most_ + size_[place]; ++i) result.offer(logit_[i], token_[i]);
    }
    return result;
  }

  // The highest of some logits and the sum of exp(logit - highest).
  struct Total {
    double highest, sum;
    double normalizer() const { return highest + std::log(sum); }
  };

  Total total(int64_t row, int64_t block) const {
    return {highest_[row * blocks_ + block], sum_[row * blocks_ + block]};
  }

  Total total(int64_t row) const {
    const float* highest = &highest_[row * blocks_];
    Total result{*std::max_element(highest, highest + blocks_), 0};
    for (int64_t i = 0; i < blocks_; ++i) result.sum += sum_[row * blocks_ + i] * std::exp(highest[i] - result.highest);
    return result;
  }

  float normalizer(int64_t row) const { return static_cast<float>(total(row).normalizer()); }

 private:
  const StepRoutines& routines_ = step_routines();
  int64_t blocks_, vocabulary_, parts_, most_;
  std::vector<float> highest_, logit_;
  std::vector<double> sum_;
  std::vector<int64_t> size_, token_;
};

// The hypotheses of each sentence with their scores, and the operator's outputs.
class Continuations {
 public:
  // `scores` [batch, beam] is the input 1, the width the input 2. The inputs from `prefix` on are the tokens [batch, any]
  // that the texts begin with, padded, and the position of this step, one or that of each sentence, then those of
  // Edits, Phrases, how much likelier the tokens of the prefix are made [rows], and those of Automaton and Groups; they may be absent.
  // The outputs are made later, by `make_outputs`.
  Continuations(const Context& context, int64_t vocabulary, size_t prefix, const Written& written, bool listed = false)
      : pad_(written.pad), listed_(listed) {
    const auto width = single<int64_t>(context, 2);
    require(width >= 1, "the beam's width must be at least 1");
    count = times(1 + written.ends, width);  // each hypothesis has one that goes on beside those that end
    const Value& scores = context.input(1);
    const Shape shape = scores.shape;
    require(shape.size() == 2, "logits and scores do not fit");
    batch = shape[0];
    beam = shape[1];
    require(beam >= 1, "there must be at least 1 hypothesis for each sentence");
    if (vocabulary < count) fail("the beam's width needs a vocabulary of " + std::to_string(count) + " tokens");
    before_ = scores.as<float>();
    const Sentences sentences(context, prefix + 8, batch);
    const Phrases phrases(context, prefix + 9, sentences);
    if (phrases.any()) phrases_ = std::make_unique<Phrases>(phrases);
    groups_ = std::make_unique<Groups>(context, prefix + 15, sentences, width, beam);
    require(groups_->count == 1 || !phrases_, "groups of a beam have no phrases");
    const Edits edits(context, prefix + 2, vocabulary, batch, beam);
    read_forced(context, vocabulary, prefix, sentences, edits);
    automaton = Automaton(context, prefix + 11, prefix, pad_, vocabulary, batch, beam, sentences, edits, written.times);
    read_edits(edits, vocabulary);
  }

  // The tokens of a row whose logits `choose` asks for, in order: the forced one, or else those with edits.
  struct Asked {
    const int64_t *first, *last;
  };
  Asked asked(int64_t row) const {
    return {asked_.data() + begins_[static_cast<size_t>(row)], asked_.data() + begins_[static_cast<size_t>(row) + 1]};
  }
  bool asks() const { return !asked_.empty(); }

  // Allocates the outputs, when all inputs have been checked.
  void make_outputs(const Context& context) {
    scores_ = context.output<float>(0, {batch, count});
    tokens_ = context.output<int64_t>(1, {batch, count});
    parents_ = context.output<int64_t>(2, {batch, count});
  }

  int64_t rows() const { return times(batch, beam); }

  // How many of the best tokens of a row hold its continuations, whatever other rows edit.
  int64_t most_of(int64_t row) const { return most_of_.empty() ? most : most_of_[static_cast<size_t>(row)]; }

  // Writes those of a sentence, of the best tokens and the normalizers of its rows: `most` tokens of each.
  // `logit_of(row, token)` is the logit of a token that is asked for.
  template <typename Rows, typename Logit>
  void choose(const Rows& rows, int64_t sentence, const Logit& logit_of) const {
    std::vector<int64_t> taken;
    for (int64_t group = 0; group < groups_->count; ++group) choose(rows, sentence, logit_of, group, taken);
  }

  int64_t count;  // how many continuations each sentence has
  int64_t most;   // how many of the best tokens of any row hold its continuations, whatever is edited
  int64_t batch, beam;
  Automaton automaton;  // which tokens may follow a row, but for forced ones

 private:
  struct Continuation {
    int64_t token, parent;
  };

  // Writes those of a group. `taken` are the tokens that hypotheses of earlier groups go on with, to which its own are added.
  // Earlier groups change the scores of fewer tokens than a row keeps beyond those of a group.
  template <typename Rows, typename Logit>
  void choose(const Rows& rows, int64_t sentence, const Logit& logit_of, int64_t group,
              std::vector<int64_t>& taken) const {
    const int64_t groups = groups_->count, own = count / groups, parents = beam / groups;
    const bool by_bank = phrases_ && phrases_->any(sentence);
    Ranking<Continuation> best(by_bank ? beam * most : own);
    const auto offer = [&](float score, int64_t token, int64_t parent) {
      const float less = taken.empty() ? score : score - groups_->penalty(sentence, uses(taken, token));
      best.offer(less + before_[sentence * beam + parent], {token, parent});
    };
    const int64_t only = forced(sentence);
    const bool few = listed_ || only != pad_ || automaton.restricts(sentence * beam);
    float rest = few ? -INFINITY : NAN;  // of logits that are no numbers there are no candidates
    for (int64_t parent = group * parents; parent < (group + 1) * parents; ++parent) {
      const int64_t row = sentence * beam + parent;
      const float normalizer = rows.normalizer(row);
      if (std::isnan(normalizer)) rest = NAN;
      if (only != pad_) {
        const float score = logit_of(row, only) - normalizer + before_[row];
        if (std::isnan(score)) rest = NAN;
        if (!std::isnan(score)) best.offer(score, {only, parent});
        continue;
      }
      const Ranking<int64_t> mine = rows.best(row);
      if (edits_of(row) != nullptr) {
        for (const auto& [score, token] : edited(mine, row, normalizer, logit_of)) offer(score, token, parent);
        continue;
      }
      int64_t left = count;
      for (const auto& [logit, token] : mine) {
        if (left-- > 0) offer(logit - normalizer, token, parent);
      }
    }
    if (by_bank) best = in_turn(best, sentence);
    int64_t place = sentence * count + group * own;
    std::fill_n(scores_ + place, own, rest);
    std::fill_n(tokens_ + place, own, only);
    std::fill_n(parents_ + place, own, group * parents);
    if (group + 1 < groups) take(best, taken);
    for (const auto& [total, continuation] : best) {
      scores_[place] = total;
      tokens_[place] = continuation.token;
      parents_[place++] = continuation.parent;
    }
  }

  static int64_t uses(const std::vector<int64_t>& taken, int64_t token) {
    return std::count(taken.begin(), taken.end(), token);
  }

  // Adds the tokens that a group goes on with, of its continuations.
  void take(const Ranking<Continuation>& best, std::vector<int64_t>& taken) const {
    int64_t left = groups_->goes_on();
    for (const auto& [total, continuation] : best) {
      if (left == 0 || !(total > -INFINITY)) break;
      if (groups_->ends(continuation.token)) continue;
      taken.push_back(continuation.token);
      --left;
    }
  }

  // Some continuations, best first, in the order of their places: the best of each bank, from the highest bank on, then
  // the second best of each, and so on (Hu et al. 2019, section 3.2).
  Ranking<Continuation> in_turn(const Ranking<Continuation>& found, int64_t sentence) const {
    struct Place {
      int64_t turn, bank;
      float score;
      Continuation continuation;
    };
    std::vector<Place> places;
    std::vector<int64_t> turns, text;
    for (const auto& [score, continuation] : found) {
      if (score == -INFINITY) break;
      const int64_t row = sentence * beam + continuation.parent;
      text.assign(edits_->text(row), edits_->text(row) + edits_->length(row));
      text.push_back(continuation.token);
      const int64_t length = static_cast<int64_t>(text.size());
      const int64_t bank = phrases_->bank(sentence, phrases_->standing(sentence, text.data(), length));
      if (bank >= static_cast<int64_t>(turns.size())) turns.resize(static_cast<size_t>(bank) + 1);
      places.push_back({turns[static_cast<size_t>(bank)]++, bank, score, continuation});
    }
    std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
      return a.turn != b.turn ? a.turn < b.turn : a.bank > b.bank;
    });
    Ranking<Continuation> result(count);
    for (const Place& place : places) result.append(place.score, place.continuation);
    return result;
  }

  // The tokens that continue the phrases of a row, none of which are edited.
  std::vector<int64_t> kept(const Edits& edits, int64_t row) const {
    if (!phrases_ || !phrases_->any(row / beam)) return {};
    const std::vector<int64_t> standing = phrases_->standing(row / beam, edits.text(row), edits.length(row));
    return phrases_->next(row / beam, standing);
  }

  // The forced token of a sentence, or the padding if any may follow.
  int64_t forced(int64_t sentence) const { return forced_.empty() ? pad_ : forced_[static_cast<size_t>(sentence)]; }

  const std::vector<Edit>* edits_of(int64_t row) const {
    return row_edits_.empty() || row_edits_[static_cast<size_t>(row)].empty() ? nullptr
                                                                              : &row_edits_[static_cast<size_t>(row)];
  }

  // The log probabilities of the best tokens of a row without those with edits, and of these after them; best first.
  template <typename Logit>
  std::vector<std::pair<float, int64_t>> edited(const Ranking<int64_t>& best, int64_t row, float normalizer,
                                                const Logit& logit_of) const {
    const auto [first, last] = asked(row);
    const Bias bias = bias_of(row);
    const float others = normalizer - bias.log_rest();
    std::vector<std::pair<float, int64_t>> found;
    for (const auto& [logit, token] : best) {
      if (static_cast<int64_t>(found.size()) == count) break;
      if (!std::binary_search(first, last, token)) found.emplace_back(logit - others, token);
    }
    for (const Edit& edit : *edits_of(row)) {
      const float logit = logit_of(row, edit.token);
      const float own = edit.token == bias.token ? bias.likelier(logit - normalizer) : logit - others;
      const float score = edits_->apply(edit, own, row);
      if (!std::isnan(score)) found.emplace_back(score, edit.token);
    }
    if (const TimedRow* times = automaton.times(row)) times->choose(found);
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    if (phrases_ && phrases_->any(row / beam)) leave_best(found, *edits_of(row));
    return found;
  }

  // Leaves as many tokens as a row without edits has, beside those that continue phrases.
  void leave_best(std::vector<std::pair<float, int64_t>>& found, const std::vector<Edit>& edits) const {
    const auto continues = [&](int64_t token) {
      const auto edit = std::lower_bound(edits.begin(), edits.end(), token,
                                         [](const Edit& one, int64_t other) { return one.token < other; });
      return edit != edits.end() && edit->token == token && edit->kept;
    };
    size_t size = 0;
    int64_t left = count;
    for (const auto& one : found) {
      if (continues(one.second) || left-- > 0) found[size++] = one;
    }
    found.resize(size);
  }

  void read_edits(const Edits& edits, int64_t vocabulary) {
    most = count;
    if (edits.any() || phrases_ || !biases_.empty() || automaton.any_times()) edits_ = std::make_unique<Edits>(edits);
    if (!edits_ && forced_.empty()) return;
    for (int64_t row = 0; row < rows(); ++row) {
      begins_.push_back(static_cast<int64_t>(asked_.size()));
      const int64_t only = forced(row / beam);
      row_edits_.push_back(only == pad_ && edits_ ? row_edits(row) : std::vector<Edit>());
      if (only != pad_) asked_.push_back(only);
      most_of_.push_back(std::min(vocabulary, count + static_cast<int64_t>(row_edits_.back().size())));
      most = std::max(most, most_of_.back());
      if (const TimedRow* times = automaton.times(row); times != nullptr && only == pad_) {
        row_edits_.back() = with_times(row_edits_.back(), *times);
      }
      for (const Edit& edit : row_edits_.back()) asked_.push_back(edit.token);
    }
    begins_.push_back(static_cast<int64_t>(asked_.size()));
  }

  // The edits of a row; tokens that may not follow are banned.
  std::vector<Edit> row_edits(int64_t row) const {
    std::vector<Edit> result = edits_->of(row, kept(*edits_, row), bias_of(row).token);
    const TimedRow* times = automaton.times(row);
    for (Edit& edit : result) {
      const bool follows = automaton.allows(row, edit.token) || (times != nullptr && times->allows_time(edit.token));
      if (!follows) edit = {edit.token, 0, true};
    }
    return result;
  }

  // Edits, with those of all times that may follow, which change nothing: no scan looks for times.
  static std::vector<Edit> with_times(const std::vector<Edit>& edits, const TimedRow& times) {
    std::vector<Edit> result;
    auto edit = edits.begin();
    for (; edit != edits.end() && edit->token < times.least(); ++edit) result.push_back(*edit);
    for (int64_t token = times.least(); token <= times.most(); ++token) {
      const bool is_edited = edit != edits.end() && edit->token == token;
      result.push_back(is_edited ? *edit++ : Edit{token, 0, false});
    }
    result.insert(result.end(), edit, edits.end());
    return result;
  }

  void read_forced(const Context& context, int64_t vocabulary, size_t input, const Sentences& sentences,
                   const Edits& edits) {
    if (!context.input(input) || !context.input(input + 1)) return;
    const Value& prefix = context.input(input);
    const Shape shape = prefix.shape;
    require(shape.size() == 2 && shape[0] == batch, "prefix and scores do not fit");
    const Positions positions(context, input + 1, batch);
    require(positions.first() >= 0, "the position is below 0");
    if (positions.first() >= shape[1]) return;
    Option<float> bias(0);
    bias.read(context, input + 10, sentences);
    if (bias.differs(0)) biases_.resize(static_cast<size_t>(rows()));
    const int64_t* tokens = prefix.as<int64_t>();
    for (int64_t i = 0; i < batch; ++i) {
      const int64_t* own = tokens + i * shape[1];
      const int64_t token = positions[i] < shape[1] ? own[positions[i]] : pad_;
      require(token == pad_ || (token >= 0 && token < vocabulary), "a token of the prefix is not in the vocabulary");
      const float share = bias.of(sentences, i);
      forced_.push_back(share == 0 ? token : pad_);
      if (share == 0 || token == pad_) continue;
      require(share > 0 && share < 1 && edits.text(0) != nullptr, "the bias of a prefix is from 0 to less than 1");
      for (int64_t row = i * beam; row < (i + 1) * beam; ++row) {
        const bool follows =
            edits.length(row) > positions[i] && std::equal(own, own + positions[i], edits.text(row) + 1);
        if (follows) biases_[static_cast<size_t>(row)] = {token, share};
      }
    }
  }

  // The token of the prefix that is made likelier after a text, if any (docs/search.md).
  struct Bias {
    int64_t token = Edits::NONE;
    float share = 0;

    // What is added to the log probabilities of the other tokens.
    float log_rest() const { return token == Edits::NONE ? 0 : std::log1p(-share); }
    // The log probability of the token, from that which the model gives it.
    float likelier(float score) const { return std::log((1 - share) * std::exp(score) + share); }
  };

  Bias bias_of(int64_t row) const { return biases_.empty() ? Bias() : biases_[static_cast<size_t>(row)]; }

  int64_t pad_;
  bool listed_;                  // a row may have fewer tokens than continuations
  std::vector<int64_t> forced_;  // of each sentence; empty if there is none
  std::unique_ptr<Edits> edits_;
  std::unique_ptr<Phrases> phrases_;
  std::vector<Bias> biases_;  // of each row; empty if there is none
  std::unique_ptr<Groups> groups_;
  std::vector<std::vector<Edit>> row_edits_;
  std::vector<int64_t> most_of_;         // of each row, if any has edits
  std::vector<int64_t> asked_, begins_;  // those of a row are from one element of `begins_` to the next
  const float* before_;
  float* scores_ = nullptr;
  int64_t *tokens_ = nullptr, *parents_ = nullptr;
};

}  // namespace xformc
