// ProjectCandidates (docs/kernels.md): Candidates of a projection, whose logits never leave the cache.
#include "search_vocabulary.h"

namespace xformc {
namespace {

// The logits of the tokens that the choice asks for, which are picked out of their blocks.
class AskedLogits {
 public:
  explicit AskedLogits(const Continuations& continuations) : continuations_(continuations) {
    if (continuations.asks())
      logits_.resize(static_cast<size_t>(continuations.asked(continuations.rows() - 1).last - origin()));
  }

  void look(int64_t row, int64_t block, const float* logits) {
    if (logits_.empty()) return;
    const auto [first, last] = continuations_.asked(row);
    const int64_t begin = block * SCAN_BLOCK;
    for (const int64_t* i = std::lower_bound(first, last, begin); i != last && *i < begin + SCAN_BLOCK; ++i) {
      logits_[static_cast<size_t>(i - origin())] = logits[*i - begin];
    }
  }

  float operator()(int64_t row, int64_t token) const {
    const auto [first, last] = continuations_.asked(row);
    return logits_[static_cast<size_t>(std::lower_bound(first, last, token) - origin())];
  }

 private:
  const int64_t* origin() const { return continuations_.asked(0).first; }

  const Continuations& continuations_;
  std::vector<float> logits_;
};

struct ProjectCandidates : Kernel {
  explicit ProjectCandidates(const Attributes& info) : written(info) {
    precision = precision_of(info.text("precision"));
    require(precision != Precision::screened, "ScreenCandidates reads screened weights");
    vocabulary = info.integer("vocabulary");
  }

  void run(const Context& context) override {
    Continuations continuations(context, vocabulary, 6, written);
    const Value& input = context.input(0);
    const int64_t rows = continuations.rows(), depth = depth_of(input, continuations);
    const Weight weight = bind_vocabulary(context, 3, 4, 5, precision, vocabulary, depth);
    continuations.make_outputs(context);
    if (rows == 0) return;

    const PackedRows packed(context, routines(), precision, input.as<float>(), rows, depth);
    const LogitShares shares(packed, weight, rows);
    Scan scan(vocabulary, rows, shares.parts(), continuations.most);
    AskedLogits asked(continuations);
    shares.run(context, scan, [&](int64_t row, int64_t part, int64_t block, const float* logits) {
      scan.look(row, part, block, logits, continuations.automaton);
      asked.look(row, block, logits);
    });
    choose_all(context, continuations, scan, asked);
  }

  Precision precision;
  int64_t vocabulary;
  Written written;
};

}  // namespace

void add_project_candidates(Operators& all) {
  static const Operator project_candidates(
      "ProjectCandidates", make_kernel<ProjectCandidates>,
      {FLOAT, FLOAT, INT64, ANY,   FLOAT, FLOAT, INT64, INT64, INT64, INT64, INT64, FLOAT,
       FLOAT, FLOAT, INT64, INT64, FLOAT, INT32, INT64, INT64, INT64, INT64, FLOAT, INT64},
      {FLOAT, INT64, INT64}, 4);
  all.push_back(&project_candidates);
}

}  // namespace xformc
