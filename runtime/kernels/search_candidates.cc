// Candidates (docs/kernels.md): the best continuations of each sentence.
#include "search_scan.h"

namespace xformc {
namespace {

struct Candidates : Kernel {
  explicit Candidates(const Attributes& info) : written(info) {}

  void run(const Context& context) override {
    const Value& logits = context.input(0);
    const Shape shape = logits.shape;
    require(shape.size() == 4, "logits and scores do not fit");
    const int64_t vocabulary = shape[3];
    Continuations continuations(context, vocabulary, 3, written);
    const int64_t batch = continuations.batch, beam = continuations.beam, rows = continuations.rows();
    require(shape == Shape{batch, beam, 1, vocabulary}, "logits and scores do not fit");
    continuations.make_outputs(context);
    const float* data = logits.as<float>();

    const int64_t parts = rows < ENOUGH_PARTS ? ceil_div(ENOUGH_PARTS, std::max<int64_t>(rows, 1)) : 1;
    Scan scan(vocabulary, rows, std::min(Scan::blocks_of(vocabulary), parts), continuations.most);
    const auto look = [&](int64_t row, int64_t part) {
      for (int64_t block = scan.first_block(part); block < scan.first_block(part + 1); ++block) {
        scan.look(row, part, block, data + row * vocabulary + block * SCAN_BLOCK, continuations.automaton);
      }
    };
    const auto logit_of = [&](int64_t row, int64_t token) { return data[row * vocabulary + token]; };
    if (batch >= ENOUGH_PARTS) {
      parallel(context, static_cast<size_t>(batch), [&](size_t i) {
        const int64_t sentence = static_cast<int64_t>(i);
        for (int64_t row = sentence * beam; row < (sentence + 1) * beam; ++row) look(row, 0);
        continuations.choose(scan, sentence, logit_of);
      });
    } else {
      parallel(context, static_cast<size_t>(rows * scan.parts()),
               [&](size_t i) { look(static_cast<int64_t>(i) / scan.parts(), static_cast<int64_t>(i) % scan.parts()); });
      for (int64_t sentence = 0; sentence < batch; ++sentence) continuations.choose(scan, sentence, logit_of);
    }
  }

  Written written;
};

}  // namespace

void add_candidates(Operators& all) {
  static const Operator candidates("Candidates", make_kernel<Candidates>,
                                   {FLOAT, FLOAT, INT64, INT64, INT64, INT64, INT64, INT64, FLOAT, FLOAT, FLOAT,
                                    INT64, INT64, FLOAT, INT32, INT64, INT64, INT64, INT64, FLOAT, INT64},
                                   {FLOAT, INT64, INT64}, 3);
  all.push_back(&candidates);
}

}  // namespace xformc
