// ScreenCandidates (docs/kernels.md): Candidates of a projection in float32. Its logits are first computed in integers of
// 16 bits, each with a known margin; only those that may be among the best, or weigh much in the normalizer, are computed
// in float32.
#include <atomic>

#include "search_vocabulary.h"

namespace xformc {
namespace {

// A token weighs much in the normalizer if its probability is at least 1/1024, and there is one of at least 1/32 among
// those of its block.
constexpr double WEIGHTY = -6.931, EVEN = 32;

// The tokens of each row that may be wanted in float32, with their screened logits, in order.
class Wanted {
 public:
  // `margins`: how far a row's screened logits may be from its logits in float32.
  // Tokens that the automaton does not allow are wanted only if they weigh much.
  Wanted(const Scan& scan, int64_t rows, std::vector<float> margins, const Automaton& automaton)
      : scan_(scan), automaton_(automaton), margins_(std::move(margins)), known_(margins_.size()),
        found_(static_cast<size_t>(rows * scan.parts())) {}

  struct Token {
    int32_t token;
    float logit;
  };

  // Takes in a block after the scan has; the blocks of a part come one after the other.
  void look(int64_t row, int64_t part, int64_t block, const float* logits) {
    Known& known = known_[static_cast<size_t>(row)];
    const Scan::Total total = scan_.total(row, block);
    const double sum = known.add(total.highest < -700 ? 0 : total.sum * std::exp(std::min(total.highest, 700.0)));
    const float heavy = lowered(weighty(total, std::log(sum)));
    const float least = std::fmin(lowered(good(row, known.raise(scan_.reached(row, part)))), heavy);
    if (total.highest < least) return;
    float values[SCAN_BLOCK + COLLECT_MORE];
    int32_t places[SCAN_BLOCK + COLLECT_MORE];
    const int64_t size = routines_.collect(logits, scan_.tokens_of(block), least, values, places);
    std::vector<Token>& found = found_[static_cast<size_t>(row * scan_.parts() + part)];
    const int32_t first = static_cast<int32_t>(block * SCAN_BLOCK);
    for (int64_t i = 0; i < size; ++i) {
      if (values[i] >= heavy || automaton_.allows(row, first + places[i]))
        found.push_back({first + places[i], values[i]});
    }
  }

  // Those that are wanted now that all blocks were looked at: no other token is one of the row's best.
  std::vector<Token> all(int64_t row, float reached, double normalizer) const {
    std::vector<Token> result;
    const float enough = good(row, reached);
    for (int64_t part = row * scan_.parts(); part < (row + 1) * scan_.parts(); ++part) {
      for (const Token& found : found_[static_cast<size_t>(part)]) {
        const Scan::Total block = scan_.total(row, found.token / SCAN_BLOCK);
        const float least = automaton_.allows(row, found.token) ? enough : INFINITY;
        if (found.logit >= std::fmin(least, weighty(block, normalizer))) result.push_back(found);
      }
    }
    return result;
  }

 private:
  // What is known of a row by all of its parts together, so that little is kept that turns out not to be wanted. It may
  // be less than what is true.
  class Known {
   public:
    // To the sum of exp(logit); gives that.
    double add(double more) {
      double sum = sum_.load(std::memory_order_relaxed);
      while (!sum_.compare_exchange_weak(sum, sum + more, std::memory_order_relaxed)) {
      }
      return sum + more;
    }

    // The number that enough logits reach, if it is more than what was known; gives the most that is known.
    float raise(float reached) {
      float known = reached_.load(std::memory_order_relaxed);
      while (known < reached && !reached_.compare_exchange_weak(known, reached, std::memory_order_relaxed)) {
      }
      return std::max(known, reached);
    }

   private:
    std::atomic<double> sum_{0};
    std::atomic<float> reached_{-INFINITY};
  };

  // The least screened logit that may be one of the best, if enough of them are at least `reached`. A logit in float32
  // that is as good as one of those is at most two margins below, and both were rounded when the bias was added.
  float good(int64_t row, float reached) const {
    const float least = reached - 2 * margins_[static_cast<size_t>(row)] - std::fabs(reached) * 0x1p-21f;
    return std::isnan(least) ? -INFINITY : least;
  }

  // A number that is never above what it will be in the end, however that is rounded.
  static float lowered(float least) { return std::isinf(least) ? least : least - (std::fabs(least) * 1e-5f + 1e-5f); }

  // The least screened logit of a block that weighs much.
  static float weighty(const Scan::Total& block, double normalizer) {
    return block.sum > EVEN ? INFINITY : static_cast<float>(normalizer + WEIGHTY);
  }

  const StepRoutines& routines_ = step_routines();
  const Scan& scan_;
  const Automaton& automaton_;
  std::vector<float> margins_;
  std::vector<Known> known_;
  std::vector<std::vector<Token>> found_;  // by row and part
};

// The best tokens and the normalizer of each row.
struct Chosen {
  struct Row {
    Ranking<int64_t> best{0};
    float normalizer = 0;
  };

  const Ranking<int64_t>& best(int64_t row) const { return rows[static_cast<size_t>(row)].best; }
  float normalizer(int64_t row) const { return rows[static_cast<size_t>(row)].normalizer; }

  std::vector<Row> rows;
};

struct ScreenCandidates : Kernel {
  explicit ScreenCandidates(const Attributes& info) : written_(info) {
    vocabulary_ = info.integer("vocabulary");
    require(vocabulary_ <= INT32_MAX, "the vocabulary has more than 2^31 tokens");
  }

  void run(const Context& context) override {
    Continuations continuations(context, vocabulary_, 8, written_);
    const Value& input = context.input(0);
    const int64_t rows = continuations.rows(), depth = depth_of(input, continuations);
    const Screen screen(context, vocabulary_, depth);
    continuations.make_outputs(context);
    if (rows == 0) return;

    const float* x = input.as<float>();
    const PackedRows packed(context, routines(), Precision::int16, x, rows, depth);
    const LogitShares shares(packed, screen.weight, rows);
    Scan scan(vocabulary_, rows, shares.parts(), continuations.most);
    Wanted wanted(scan, rows, screen.margins(packed, rows), continuations.automaton);
    shares.run(context, scan, [&](int64_t row, int64_t part, int64_t block, const float* logits) {
      scan.look(row, part, block, logits, continuations.automaton);
      wanted.look(row, part, block, logits);
    });
    Chosen chosen{std::vector<Chosen::Row>(static_cast<size_t>(rows))};
    parallel(context, static_cast<size_t>(rows), [&](size_t i) {
      const int64_t row = static_cast<int64_t>(i);
      chosen.rows[i] = screen.refine(scan, wanted, row, x + row * depth, continuations);
    });
    choose_all(context, continuations, chosen,
               [&](int64_t row, int64_t token) { return screen.logit(token, x + row * depth); });
  }

 private:
  // The inputs that do not change.
  struct Screen {
    Screen(const Context& context, int64_t vocabulary, int64_t depth_) : depth(depth_) {
      require(depth <= MOST_DEPTH, "x may have at most 65,536 numbers a row");
      const Value& given = context.input(3);
      require(given.shape == Shape({vocabulary, depth}), "the weight does not fit the depth of x and the vocabulary");
      weight.outputs = vocabulary;
      weight.panels = bind_weight(context.input(4), Precision::int16, vocabulary, depth);
      weight.scale = optional_input<float>(context, 5, vocabulary, "scale needs one number for each token");
      weight.bias = optional_input<float>(context, 7, vocabulary, "bias needs one number for each token");
      const float* largest = optional_input<float>(context, 6, 2, "largest has two numbers");
      require(weight.scale != nullptr && largest != nullptr, "a screen has a scale and its largest errors");
      error = largest[0];
      norm = largest[1];
      parts = ScreenedRows(context.input(4), context.input(5), given, depth);
    }

    // |w . x - w' . x'| of what is rounded to w' and x' is at most |w - w'| |x| + |x - x'| |w'|; and float32 adds at most
    // (K + 8) 2^-24 |w| |x| in any order. In units of a row's scale, |x| is at most INT16_NORM and an element of x - x'
    // a half and a little.
    std::vector<float> margins(const PackedRows& packed, int64_t rows) const {
      const double most = 1.001 * INT16_NORM, rounding = 0.51 * std::sqrt(static_cast<double>(depth));
      const double unit = most * (error + norm * static_cast<double>(depth + 8) * 0x1p-24) + rounding * (norm + error);
      std::vector<float> result;
      for (int64_t row = 0; row < rows; ++row) result.push_back(static_cast<float>(packed.scale(row) * unit));
      return result;
    }

    // The logit of a token in float32, for a row of x.
    float logit(int64_t token, const float* x) const {
      const float product = kernels.dot(row(token), x, depth);
      return weight.bias == nullptr ? product : product + weight.bias[token];
    }

    // The best tokens of a row of x in float32, and the normalizer of the screened logits with these put right.
    Chosen::Row refine(const Scan& scan, const Wanted& wanted, int64_t row, const float* x,
                       const Continuations& continuations) const {
      Ranking<int64_t> best(continuations.most);
      const Scan::Total total = scan.total(row);
      const float reached = scan.reached_by(row, continuations.most_of(row));
      const std::vector<Wanted::Token> tokens = wanted.all(row, reached, total.normalizer());
      double sum = total.sum;
      for (size_t i = 0; i < tokens.size(); ++i) {
        if (i + 1 < tokens.size()) fetch(tokens[i + 1].token);
        const int64_t token = tokens[i].token;
        const float value = logit(token, x);
        sum += std::exp(value - total.highest) - std::exp(tokens[i].logit - total.highest);
        if (continuations.automaton.allows(row, token)) best.offer(value, token);
      }
      return {std::move(best), static_cast<float>(total.highest + std::log(sum))};
    }

    const Routines& kernels = routines();
    int64_t depth;
    Weight weight;       // in integers
    ScreenedRows parts;  // those integers with what they leave over
    double error, norm;  // the largest |w - w'| and |w|

   private:
    // The weight of a token in float32, up to the thread's next call.
    const float* row(int64_t token) const {
      static thread_local Buffer buffer;
      float* numbers = buffer.at_least<float>(depth);
      parts.copy(token, 1, numbers);
      return numbers;
    }

    void fetch(int64_t token) const { xformc::fetch(parts.rest + token * depth, depth); }
  };

  int64_t vocabulary_;
  Written written_;
};

}  // namespace

void add_screen_candidates(Operators& all) {
  static const Operator screen_candidates(
      "ScreenCandidates", make_kernel<ScreenCandidates>,
      {FLOAT, FLOAT, INT64, INT16, INT16, FLOAT, FLOAT, FLOAT, INT64, INT64, INT64, INT64, INT64,
       FLOAT, FLOAT, FLOAT, INT64, INT64, FLOAT, INT32, INT64, INT64, INT64, INT64, FLOAT, INT64},
      {FLOAT, INT64, INT64}, 7);
  all.push_back(&screen_candidates);
}

}  // namespace xformc
