// Advance (docs/kernels.md): the bookkeeping of one step of the search, as docs/search.md defines it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "positions.h"
#include "search_phrases.h"
#include "search_ranking.h"

namespace xformc {
namespace {

constexpr float NEVER = -std::numeric_limits<float>::infinity();
constexpr int64_t LONGEST = int64_t{1} << 40;  // positions: more are a lie
constexpr int64_t FINISHED_SHARE = 8;  // the search goes on while less than a share of 1/8 of its sentences is finished

enum StopRule : int64_t { FIRST, BEST, COMPLETE, SHRINK };  // in the order of docs/search.md

struct Inputs {
  explicit Inputs(const Context& context_)
      : context(context_), width(single<int64_t>(context, 0)), end_tokens(ids(1)), ends(count(1)),
        positions(context, 3, first_axis(context.input(9))), done(context.input(4).as<bool>()), limit(ids(5)),
        scores(floats(6)), next_tokens(ids(7)), parents(ids(8)), tokens(ids(9)), ancestors(ids(10)),
        pool_tokens(ids(11)), pool_lengths(ids(12)), pool_scores(floats(13)), found(ids(14)),
        least(has(15) ? ids(15) : nullptr), sentences(context, 19, first_axis(context.input(9))),
        phrases(context, 20, sentences), coverage(has(21) ? floats(21) : nullptr) {
    const Shape shape = context.input(9).shape;
    require(width >= 1, "the beam's width must be at least 1");
    require(positions.first() >= 0 && positions.last() < LONGEST, "there are too many positions");
    require(shape.size() == 3 && shape[1] <= width, "there are more hypotheses than the beam's width");
    batch = shape[0];
    beam = shape[1];
    length = shape[2];
    by_row = positions.by_row();
    require(!by_row || (beam == width && length > positions.last()),
            "rows at positions of their own have a whole beam");
    for (size_t i : {4, 5}) check(i, {batch});
    read_groups();
    if (least != nullptr) check(15, {batch});
    if (coverage != nullptr) check(21, {batch, beam});
    read_candidates();
    for (size_t i : {12, 13}) check(i, {batch, width});
    past = by_row ? last_axis(context.input(10)) : positions.last();
    require(past >= positions.last() && past < LONGEST, "there are too few ancestors");
    check(10, {batch, beam, past});
    check(11, {batch, width, length});
    require(length <= LONGEST, "there are too many tokens");
    length_penalty.read(context, 2, sentences);
    penalty_offset.read(context, 16, sentences);
    stop_rule.read(context, 17, sentences);
    patience.read(context, 18, sentences);
    given.read(context, 22, sentences);
    const int64_t all = times(batch, times(groups, candidates));
    for (int64_t i = 0; i < all; ++i) require(parents[i] >= 0 && parents[i] < beam, "no such parent");
  }

  // What the input 14 has: the finished hypotheses of each group, [batch, groups], or of sentences of one group, [batch].
  void read_groups() {
    found_shape = context.input(14).shape;
    groups = found_shape.size() == 2 ? found_shape[1] : 1;
    require(found_shape == Shape{batch} || found_shape == Shape{batch, groups}, "input 14 has a wrong shape");
    require(groups >= 1 && width % groups == 0, "the groups do not divide the beam");
    own = width / groups;
  }

  // The inputs 6, 7 and 8 have one candidate that goes on for each hypothesis, and at least one that ends.
  void read_candidates() {
    const int64_t all = last_axis(context.input(6));
    require(all >= times(2, width) && all % groups == 0,
            "there are too few candidates, or the groups do not divide them");
    for (size_t i : {6, 7, 8}) check(i, {batch, all});
    candidates = all / groups;
  }

  static int64_t first_axis(const Value& value) {
    const Shape shape = value.shape;
    require(!shape.empty(), "there are no sentences");
    return shape[0];
  }
  static int64_t last_axis(const Value& value) {
    const Shape shape = value.shape;
    require(!shape.empty(), "there are no candidates, or no ancestors");
    return shape.back();
  }
  bool has(size_t index) const { return context.input(index); }
  const int64_t* ids(size_t index) const { return context.input(index).as<int64_t>(); }
  int64_t count(size_t index) const { return context.input(index).count(); }
  const float* floats(size_t index) const { return context.input(index).as<float>(); }
  void check(size_t index, const Shape& shape) const {
    if (context.input(index).shape != shape) fail("input " + std::to_string(index) + " has a wrong shape");
  }

  const Context& context;
  int64_t width;
  const int64_t* end_tokens;
  int64_t ends;  // how many end tokens there are
  Positions positions;
  const bool* done;
  const int64_t* limit;
  const float* scores;
  const int64_t *next_tokens, *parents, *tokens, *ancestors, *pool_tokens, *pool_lengths;
  const float* pool_scores;
  const int64_t *found, *least;  // `least` tokens of a text; null for engines that have no least number
  Sentences sentences;
  Phrases phrases;
  const float* coverage;  // what each hypothesis adds to the score of a text that ends; null for nothing
  Option<float> length_penalty{0}, penalty_offset{5}, patience{1};
  Option<int64_t> stop_rule{FIRST}, given{0};  // the length penalty does not count the `given` tokens of a text
  Shape found_shape;
  int64_t groups, own;          // `own` hypotheses go out of each group
  int64_t candidates;           // of each group
  int64_t batch, beam, length;  // `beam` hypotheses of each sentence come in, `width` go out
  int64_t past;                 // how many ancestors each hypothesis has room for
  bool by_row;                  // whether each sentence has a position; then those that are done stay as they are
};

struct Outputs {
  // `positions` is the shape of the positions, `past` the number of ancestors.
  Outputs(const Context& context, int64_t batch, int64_t width, int64_t length, const Shape& positions, int64_t past,
          const Shape& found)
      : go_on(make<bool>(context, 0, {})), positions(make<int64_t>(context, 1, positions)),
        done(make<bool>(context, 2, {batch})), tokens(make<int64_t>(context, 3, {batch, width, length})),
        scores(make<float>(context, 4, {batch, width})), pool_tokens(make<int64_t>(context, 5, {batch, width, length})),
        pool_lengths(make<int64_t>(context, 6, {batch, width})), pool_scores(make<float>(context, 7, {batch, width})),
        found(make<int64_t>(context, 8, found)), ancestors(make<int64_t>(context, 9, {batch, width, past})) {}

  template <typename T>
  static T* make(const Context& context, size_t index, const Shape& shape) {
    return context.output<T>(index, shape);
  }

  bool* go_on;
  int64_t* positions;
  bool* done;
  int64_t* tokens;
  float* scores;
  int64_t *pool_tokens, *pool_lengths;
  float* pool_scores;
  int64_t *found, *ancestors;
};

// The length penalty and the stop rule of a sentence.
struct Rules {
  Rules(const Inputs& in, int64_t sentence)
      : length_penalty(in.length_penalty.of(in.sentences, sentence)),
        penalty_offset(in.penalty_offset.of(in.sentences, sentence)),
        stop_rule(in.stop_rule.of(in.sentences, sentence)), patience(in.patience.of(in.sentences, sentence)),
        given(std::clamp<int64_t>(in.given.of(in.sentences, sentence), 0, LONGEST)) {}

  // The divisor of the log probability of a hypothesis of so many tokens. One of given tokens alone counts as one token.
  float divisor(int64_t tokens) const {
    const float length = static_cast<float>(std::max<int64_t>(tokens - given, 1)) + penalty_offset;
    return std::pow(length / (penalty_offset + 1.0f), length_penalty);
  }

  // The number of finished hypotheses that ends the search, where a number does.
  int64_t enough(int64_t width) const {
    const float number = std::floor(static_cast<float>(width) * patience + 0.5f);
    return stop_rule == FIRST && number < static_cast<float>(LONGEST) ? static_cast<int64_t>(number) : width;
  }

  // The width of the beam after so many hypotheses have finished.
  int64_t places(int64_t width, int64_t found) const {
    return stop_rule == SHRINK ? width - std::clamp<int64_t>(found, 0, width) : width;
  }

  float length_penalty, penalty_offset;
  int64_t stop_rule;
  float patience;
  int64_t given;
};

// Advances the search of one sentence at a time.
class Step {
 public:
  explicit Step(const Context& context)
      : in_(context), past_(in_.by_row ? in_.past : in_.past + 1), length_(make_room()),
        out_(context, in_.batch, in_.width, length_, in_.by_row ? Shape{in_.batch} : Shape{}, past_, in_.found_shape) {}

  void run() {
    int64_t finished = 0;
    for (int64_t sentence = 0; sentence < in_.batch; ++sentence) {
      if (stays(sentence)) {
        keep(sentence);
      } else {
        advance(sentence);
      }
      finished += out_.done[sentence];
      if (in_.by_row) out_.positions[sentence] = in_.positions[sentence] + !out_.done[sentence];
    }
    *out_.go_on = finished * FINISHED_SHARE < in_.batch;
    if (!in_.by_row) *out_.positions = in_.positions.last() + 1;
  }

 private:
  // Whether a sentence stays as it is.
  bool stays(int64_t sentence) const { return in_.by_row && in_.done[sentence]; }

  // Returns the number of tokens with the next one of each sentence, and makes room for its ancestor.
  int64_t make_room() {
    int64_t length = in_.by_row ? in_.length : in_.length + 1;
    for (int64_t sentence = 0; sentence < in_.batch; ++sentence) {
      if (!in_.by_row || stays(sentence)) continue;
      past_ = std::max(past_, in_.positions[sentence] + 1);
      length = std::max(length, in_.positions[sentence] + 2);
    }
    return length;
  }

  void advance(int64_t sentence) {
    const Rules rules(in_, sentence);
    const int64_t next = in_.positions[sentence] + 1;
    const bool last = in_.limit[sentence] <= next;
    const float penalty = rules.divisor(next);
    bool over = true;
    for (int64_t group = sentence * in_.groups; group < (sentence + 1) * in_.groups; ++group) {
      const int64_t found = std::min(in_.found[group], std::numeric_limits<int64_t>::max() - in_.own);
      out_.found[group] = found + finish(sentence, group, last, penalty, rules.places(in_.own, in_.found[group]));
      go_on(sentence, group, rules.places(in_.own, out_.found[group]));
      const bool group_is_over = is_over(sentence, group, rules, penalty);
      if (group_is_over && in_.groups > 1) std::fill_n(out_.scores + group * in_.own, in_.own, NEVER);
      over = over && group_is_over;
    }
    out_.done[sentence] = in_.done[sentence] || last || over;
  }

  // Leaves a sentence as it is, with more room.
  void keep(int64_t sentence) {
    std::copy_n(in_.found + sentence * in_.groups, in_.groups, out_.found + sentence * in_.groups);
    out_.done[sentence] = true;
    for (int64_t row = sentence * in_.width; row < (sentence + 1) * in_.width; ++row) {
      out_.scores[row] = in_.scores[row];
      out_.pool_scores[row] = in_.pool_scores[row];
      out_.pool_lengths[row] = in_.pool_lengths[row];
      copy(in_.tokens, row, out_.tokens, row);
      copy(in_.pool_tokens, row, out_.pool_tokens, row);
      std::copy_n(in_.ancestors + row * in_.past, in_.past, out_.ancestors + row * past_);
      std::fill(out_.ancestors + row * past_ + in_.past, out_.ancestors + (row + 1) * past_, 0);
    }
  }

  // Copies the tokens of a hypothesis to a row with more room.
  void copy(const int64_t* from, int64_t row, int64_t* to, int64_t place) const {
    std::copy_n(from + row * in_.length, in_.length, to + place * length_);
    std::fill(to + place * length_ + in_.length, to + (place + 1) * length_, 0);
  }

  // Whether the search of a group is over before its length limit, from the results of the step. Groups are counted from
  // the first one of the first sentence.
  bool is_over(int64_t sentence, int64_t group, const Rules& rules, float penalty) const {
    const float best = out_.scores[group * in_.own];
    if (best == NEVER) return true;
    if (rules.stop_rule != BEST && rules.stop_rule != COMPLETE) return out_.found[group] >= rules.enough(in_.own);
    const bool to_the_end = rules.stop_rule == COMPLETE && rules.length_penalty > 0.0f;
    const float bound = best / (to_the_end ? rules.divisor(in_.limit[sentence]) : penalty);
    return bound <= out_.pool_scores[(group + 1) * in_.own - 1];
  }

  // Whether the next token of a sentence is one of its given tokens, which end no text and are not scored.
  bool is_given(int64_t sentence) const { return in_.positions[sentence] < in_.given.of(in_.sentences, sentence); }

  bool ended(int64_t sentence, int64_t candidate) const {
    const int64_t* last = in_.end_tokens + in_.ends;
    return !is_given(sentence) && std::find(in_.end_tokens, last, in_.next_tokens[candidate]) != last;
  }

  // Whether a candidate has all phrases of its sentence.
  bool has_phrases(int64_t sentence, int64_t candidate) const {
    if (!in_.phrases.any(sentence)) return true;
    const int64_t* begun = in_.tokens + (sentence * in_.beam + in_.parents[candidate]) * in_.length;
    std::vector<int64_t> text(begun, begun + (in_.by_row ? in_.positions[sentence] + 1 : in_.length));
    text.push_back(in_.next_tokens[candidate]);
    const auto length = static_cast<int64_t>(text.size());
    return in_.phrases.all(sentence, in_.phrases.standing(sentence, text.data(), length));
  }

  // The coverage penalty of a candidate that ends: that of its parent, whose last step wrote the candidate's token.
  float covered(int64_t sentence, int64_t candidate) const {
    return in_.coverage == nullptr ? 0.0f : in_.coverage[sentence * in_.beam + in_.parents[candidate]];
  }

  // Moves the candidates of a group among the first `last_place` that end here into its pool, and returns their number.
  int64_t finish(int64_t sentence, int64_t group, bool last, float penalty, int64_t last_place) {
    const int64_t width = in_.own, first = group * width, first_candidate = group * in_.candidates;
    const int64_t next = in_.positions[sentence] + 1;
    const bool too_short = in_.least != nullptr && next < in_.least[sentence];
    Ranking<int64_t> pool(width);
    int64_t count = 0;
    for (int64_t i = 0; i < width; ++i) pool.offer(in_.pool_scores[first + i], i);
    for (int64_t i = 0; i < width; ++i) {
      const int64_t candidate = first_candidate + i;
      const bool ends = ((ended(sentence, candidate) && !too_short) || last) && !in_.done[sentence] && i < last_place &&
                        has_phrases(sentence, candidate);
      pool.offer(ends ? in_.scores[candidate] / penalty + covered(sentence, candidate) : NEVER, width + i);
      count += ends && in_.scores[candidate] != NEVER;
    }
    for (int64_t i = 0; i < width; ++i) {
      const auto [score, chosen] = pool[i];
      out_.pool_scores[first + i] = score;
      if (chosen < width) {
        out_.pool_lengths[first + i] = in_.pool_lengths[first + chosen];
        copy(in_.pool_tokens, first + chosen, out_.pool_tokens, first + i);
      } else {
        out_.pool_lengths[first + i] = next;
        write(sentence, first_candidate + chosen - width, out_.pool_tokens, first + i);
      }
    }
    return count;
  }

  // The best candidates of a group that do not end are its hypotheses of the next step, in so many places.
  void go_on(int64_t sentence, int64_t group, int64_t open_places) {
    const int64_t width = in_.own, first = group * width, first_candidate = group * in_.candidates;
    Ranking<int64_t> open(width);
    int64_t places = width;  // for candidates in their order, which is that of their scores where there are no phrases
    for (int64_t i = first_candidate; i < first_candidate + in_.candidates; ++i) {
      const bool goes_on = !ended(sentence, i) && places > 0;
      places -= goes_on;
      open.offer(goes_on ? in_.scores[i] : NEVER, i);
    }
    for (int64_t i = 0; i < width; ++i) {
      const auto [offered, candidate] = open[i];
      const float score = offered > NEVER && is_given(sentence) ? 0.0f : offered;
      const int64_t parent = in_.parents[candidate], position = in_.positions[sentence];
      int64_t* ancestors = out_.ancestors + (first + i) * past_;
      out_.scores[first + i] = i < open_places ? score : NEVER;
      write(sentence, candidate, out_.tokens, first + i);
      std::copy_n(in_.ancestors + (sentence * in_.beam + parent) * in_.past, position, ancestors);
      ancestors[position] = parent;
      std::fill(ancestors + position + 1, out_.ancestors + (first + i + 1) * past_, 0);
    }
  }

  // Writes the tokens of a candidate: those of its parent and its own, which is the last or that after its position.
  void write(int64_t sentence, int64_t candidate, int64_t* tokens, int64_t row) const {
    copy(in_.tokens, sentence * in_.beam + in_.parents[candidate], tokens, row);
    tokens[row * length_ + (in_.by_row ? in_.positions[sentence] + 1 : in_.length)] = in_.next_tokens[candidate];
  }

  Inputs in_;
  int64_t past_, length_;
  Outputs out_;
};

struct Advance : Kernel {
  explicit Advance(const Attributes&) {}

  void run(const Context& context) override { Step(context).run(); }
};

}  // namespace

void add_advance(Operators& all) {
  static const Operator advance("Advance", make_kernel<Advance>,
                                {INT64, INT64, FLOAT, INT64, BOOL,  INT64, FLOAT, INT64, INT64, INT64, INT64, INT64,
                                 INT64, FLOAT, INT64, INT64, FLOAT, INT64, FLOAT, INT64, INT64, FLOAT, INT64},
                                {BOOL, INT64, BOOL, INT64, FLOAT, INT64, INT64, FLOAT, INT64, INT64}, 15);
  all.push_back(&advance);
}

}  // namespace xformc
