// DrawToken (docs/kernels.md): a token of each text by its logits, and the log probability of that token.
#include <limits>

#include "product.h"
#include "search_scan.h"

namespace xformc {
namespace {

// An option that has one row, or one for each text.
class Rows {
 public:
  Rows(const Value& option, int64_t batch) : data_(option.as<float>()), one_(option.count() == 1) {
    require(one_ || option.count() == batch, "an option lacks the row of a text");
  }
  float of(int64_t text) const { return data_[one_ ? 0 : text]; }

 private:
  const float* data_;
  bool one_;
};

struct DrawToken : Kernel {
  explicit DrawToken(const Attributes&) {}

  void run(const Context& context) override {
    const Value& logits = context.input(0);
    const Shape shape = logits.shape;
    require(shape.size() >= 2 && shape.back() >= 1, "there are no logits");
    const int64_t vocabulary = shape.back(), batch = product(shape, 0, shape.size() - 1);
    const Rows uniform(context.input(1), batch), temperature(context.input(2), batch), least(context.input(3), batch);
    const float* data = logits.as<float>();
    const float* scores = optional_input<float>(context, 4, times(batch, vocabulary), "scores and logits do not fit");
    int64_t* tokens = context.output<int64_t>(0, {batch});
    float* gains = context.output<float>(1, {batch});

    const int64_t parts = batch < ENOUGH_PARTS ? ceil_div(ENOUGH_PARTS, std::max<int64_t>(batch, 1)) : 1;
    const auto scanned = [&](const float* values) {
      Scan scan(vocabulary, batch, std::min(Scan::blocks_of(vocabulary), parts), 1);
      const Automaton any;
      parallel(context, static_cast<size_t>(batch * scan.parts()), [&](size_t i) {
        const int64_t row = static_cast<int64_t>(i) / scan.parts(), part = static_cast<int64_t>(i) % scan.parts();
        for (int64_t block = scan.first_block(part); block < scan.first_block(part + 1); ++block) {
          scan.look(row, part, block, values + row * vocabulary + block * SCAN_BLOCK, any);
        }
      });
      return scan;
    };
    const Scan scan = scanned(data), edited = scores == nullptr ? scan : scanned(scores);
    if (scores == nullptr) scores = data;
    parallel(context, static_cast<size_t>(batch), [&](size_t i) {
      const int64_t row = static_cast<int64_t>(i);
      const float* own = scores + row * vocabulary;
      const float divisor = temperature.of(row);
      const Ranking<int64_t> best = edited.best(row);
      if (best.size() == 0) {  // the logits are no numbers
        tokens[row] = 0;
        gains[row] = NAN;
        return;
      }
      tokens[row] = best[0].second;
      if (divisor != 0) tokens[row] = drawn(own, vocabulary, best[0].first, divisor, least.of(row), uniform.of(row));
      gains[row] = data[row * vocabulary + tokens[row]] - scan.normalizer(row);
    });
  }

 private:
  // The first token up to which the weights sum up to more than `uniform` times all of them.
  static int64_t drawn(const float* scores, int64_t vocabulary, float highest, float divisor, float least,
                       float uniform) {
    static thread_local Buffer buffer;
    float* weights = buffer.at_least<float>(vocabulary);
    step_routines().weigh(scores, vocabulary, highest, divisor, weights);
    const float lowest = std::max({least, LOWEST * divisor, std::numeric_limits<float>::lowest()});
    double total = 0, reached = 0;
    for (int64_t token = 0; token < vocabulary; ++token) {
      weights[token] = scores[token] - highest >= lowest ? weights[token] : 0;
      total += weights[token];
    }
    const double goal = uniform * total;
    for (int64_t token = 0; token < vocabulary; ++token) {
      reached += weights[token];
      if (reached > goal) return token;
    }
    return 0;
  }

  static constexpr float LOWEST = -87;  // e^x is not computed for less
};

}  // namespace

void add_draw_token(Operators& all) {
  static const Operator draw("DrawToken", make_kernel<DrawToken>, {FLOAT, FLOAT, FLOAT, FLOAT, FLOAT}, {INT64, FLOAT},
                             4);
  all.push_back(&draw);
}

}  // namespace xformc
