// The logits of a projection onto a vocabulary, which are scanned while they are in the cache and never stored.
#pragma once

#include "product.h"
#include "search_scan.h"

namespace xformc {

// The split of the logits of packed rows among threads: chunks of rows times parts of the vocabulary.
class LogitShares {
 public:
  LogitShares(const PackedRows& packed, const Weight& weight, int64_t rows) : packed_(packed), weight_(weight) {
    const int64_t items = ITEMS_PER_THREAD * machine_threads();
    chunks_ = std::min(packed.blocks(), ceil_div(rows * STRIDE * sizeof(float), CACHED_BYTES));
    parts_ = std::min(Scan::blocks_of(weight.outputs), ceil_div(items, chunks_));
  }

  int64_t parts() const { return parts_; }

  // Calls look(row, part, block, logits) for each row and each block of SCAN_BLOCK tokens; for a row the blocks of a part
  // come one after the other.
  template <typename Look>
  void run(const Context& context, const Scan& scan, const Look& look) const {
    parallel(context, static_cast<size_t>(chunks_ * parts_), [&](size_t i) {
      const int64_t chunk = static_cast<int64_t>(i) % chunks_, part = static_cast<int64_t>(i) / chunks_;
      const int64_t from = packed_.blocks() * chunk / chunks_, to = packed_.blocks() * (chunk + 1) / chunks_;
      static thread_local Buffer buffer;
      const int64_t first = packed_.first(from), last = packed_.first(to), end = scan.first_block(part + 1);
      float* logits = buffer.at_least<float>((last - first) * STRIDE);
      for (int64_t block = scan.first_block(part); block < end; ++block) {
        const int64_t begin = block * SCAN_BLOCK / PANEL, panels = ceil_div(scan.tokens_of(block), PANEL);
        const Result result{logits, STRIDE, nullptr, Activation::none};
        packed_.multiply(weight_, {begin, begin + panels}, {from, to}, block + 1 < end, result);
        for (int64_t row = first; row < last; ++row) look(row, part, block, logits + (row - first) * STRIDE);
      }
    });
  }

 private:
  static constexpr int64_t CACHED_BYTES = 512 * 1024;    // of logits, to leave room in the second-level cache
  static constexpr int64_t STRIDE = SCAN_BLOCK + PANEL;  // a power of two would put all rows at one place of the cache
  static constexpr int64_t ITEMS_PER_THREAD = 8;
  static_assert(SCAN_BLOCK % PANEL == 0, "a block of logits is made of whole panels");

  const PackedRows& packed_;
  const Weight& weight_;
  int64_t chunks_, parts_;
};

// The weights of a projection onto the vocabulary, from the inputs with its numbers, its scale and its bias.
inline Weight bind_vocabulary(const Context& context, size_t numbers, size_t scale, size_t bias, Precision precision,
                              int64_t tokens, int64_t depth) {
  require(!has_scale(precision) || depth <= MOST_DEPTH, "integers take at most 65,536 numbers a row");
  Weight weight;
  weight.outputs = tokens;
  weight.panels = bind_weight(context.input(numbers), precision, tokens, depth);
  weight.scale = optional_input<float>(context, scale, scale_count(precision, tokens, depth),
                                       "scale needs one number for each token");
  weight.bias = optional_input<float>(context, bias, tokens, "bias needs one number for each token");
  require(has_scale(precision) == (weight.scale != nullptr), "a scale comes with integers");
  return weight;
}

// The input x [batch, beam, .., K axes] of a projection: K.
inline int64_t depth_of(const Value& x, const Continuations& continuations) {
  const Shape shape = x.shape;
  const bool fits = shape.size() >= 3 && shape[0] == continuations.batch && shape[1] == continuations.beam;
  require(fits, "x and scores do not fit");
  const int64_t depth = product(shape, 2, shape.size());
  require(depth >= 1, "x has no depth");
  return depth;
}

// Chooses the continuations of every sentence, in parallel where there are many.
template <typename Rows, typename Logit>
void choose_all(const Context& context, const Continuations& continuations, const Rows& rows, const Logit& logit_of) {
  const auto choose = [&](size_t sentence) { continuations.choose(rows, static_cast<int64_t>(sentence), logit_of); };
  if (continuations.batch >= ENOUGH_PARTS) {
    parallel(context, static_cast<size_t>(continuations.batch), choose);
  } else {
    for (int64_t sentence = 0; sentence < continuations.batch; ++sentence) choose(static_cast<size_t>(sentence));
  }
}

}  // namespace xformc
