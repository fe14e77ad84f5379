// Candidates (docs/kernels.md): the best continuations of each sentence.
#include <algorithm>
#include <cmath>

#include "attend.h"
#include "kernel.h"
#include "search_ranking.h"

namespace xformc {
namespace {

constexpr int64_t ENOUGH_PARTS = 8;  // work is split no further than this

// The rows of logits, each looked at in blocks that are the same whatever is done at the same time.
class Scan {
 public:
  Scan(const StepRoutines& routines, const float* logits, int64_t vocabulary, int64_t rows, int64_t most)
      : parts(1), routines_(routines), logits_(logits), vocabulary_(vocabulary), most_(most),
        blocks_((vocabulary + SCAN_BLOCK - 1) / SCAN_BLOCK) {
    if (rows < ENOUGH_PARTS) parts = std::min(blocks_, (ENOUGH_PARTS + rows - 1) / std::max<int64_t>(rows, 1));
    highest_.resize(static_cast<size_t>(rows * blocks_));
    sum_.resize(static_cast<size_t>(rows * blocks_));
    size_.resize(static_cast<size_t>(rows * parts));
    logit_.resize(static_cast<size_t>(rows * parts * most));
    token_.resize(static_cast<size_t>(rows * parts * most));
  }

  // Looks at one of the parts that each row is split into.
  void part(int64_t row, int64_t part) {
    const int64_t place = row * parts + part;
    Best best{most_, 0, &logit_[place * most_], &token_[place * most_]};
    for (int64_t block = blocks_ * part / parts; block < blocks_ * (part + 1) / parts; ++block) {
      const int64_t first = block * SCAN_BLOCK, i = row * blocks_ + block;
      const int64_t count = std::min(SCAN_BLOCK, vocabulary_ - first);
      routines_.scan(logits_ + row * vocabulary_ + first, first, count, best, highest_[i], sum_[i]);
    }
    size_[place] = best.size;
  }

  // The best tokens of a row whose parts were all looked at.
  Ranking<int64_t> best(int64_t row) const {
    Ranking<int64_t> result(most_);
    for (int64_t place = row * parts; place < (row + 1) * parts; ++place) {
      for (int64_t i = place * most_; i < place * most_ + size_[place]; ++i) result.offer(logit_[i], token_[i]);
    }
    return result;
  }

  float normalizer(int64_t row) const {
    const float* highest = &highest_[row * blocks_];
    const double most = *std::max_element(highest, highest + blocks_);
    double sum = 0;
    for (int64_t i = 0; i < blocks_; ++i) sum += sum_[row * blocks_ + i] * std::exp(highest[i] - most);
    return static_cast<float>(most + std::log(sum));
  }

  int64_t parts;

 private:
  const StepRoutines& routines_;
  const float* logits_;
  int64_t vocabulary_, most_, blocks_;
  std::vector<float> highest_, logit_;
  std::vector<double> sum_;
  std::vector<int64_t> size_, token_;
};

struct Candidates {
  explicit Candidates(const OrtKernelInfo*) {}

  struct Continuation {
    int64_t token, parent;
  };

  void Compute(OrtKernelContext* raw) {
    Ort::KernelContext context(raw);
    const Ort::ConstValue logits = context.GetInput(0), scores = context.GetInput(1);
    const int64_t count = 2 * single<int64_t>(context, 2);
    const Shape shape = shape_of(scores), whole = shape_of(logits);
    require(shape.size() == 2 && whole.size() == 4, "logits and scores do not fit");
    const int64_t batch = shape[0], beam = shape[1], vocabulary = whole[3];
    require(whole == Shape{batch, beam, 1, vocabulary}, "logits and scores do not fit");
    require(count >= 2, "the beam's width must be at least 1");
    require(vocabulary >= count, "the vocabulary is smaller than twice the beam's width");
    const float* score = scores.GetTensorData<float>();
    float* out = context.GetOutput(0, {batch, count}).GetTensorMutableData<float>();
    int64_t* tokens = context.GetOutput(1, {batch, count}).GetTensorMutableData<int64_t>();
    int64_t* parents = context.GetOutput(2, {batch, count}).GetTensorMutableData<int64_t>();

    Scan scan(routines, logits.GetTensorData<float>(), vocabulary, batch * beam, count);
    const auto choose = [&](int64_t sentence) {
      Ranking<Continuation> best(count);
      for (int64_t parent = 0; parent < beam; ++parent) {
        const int64_t row = sentence * beam + parent;
        const Ranking<int64_t> mine = scan.best(row);
        const float normalizer = scan.normalizer(row);
        for (const auto& [logit, token] : mine) best.offer(logit - normalizer + score[row], {token, parent});
      }
      const int64_t first = sentence * count;
      std::fill_n(out + first, count, NAN);  // of logits that are no numbers there are none
      std::fill_n(tokens + first, count, 0);
      std::fill_n(parents + first, count, 0);
      int64_t place = first;
      for (const auto& [total, continuation] : best) {
        out[place] = total;
        tokens[place] = continuation.token;
        parents[place++] = continuation.parent;
      }
    };
    if (batch >= ENOUGH_PARTS) {
      parallel(context, static_cast<size_t>(batch), [&](size_t i) {
        const int64_t sentence = static_cast<int64_t>(i);
        for (int64_t row = sentence * beam; row < (sentence + 1) * beam; ++row) scan.part(row, 0);
        choose(sentence);
      });
    } else {
      parallel(context, static_cast<size_t>(batch * beam * scan.parts), [&](size_t i) {
        scan.part(static_cast<int64_t>(i) / scan.parts, static_cast<int64_t>(i) % scan.parts);
      });
      for (int64_t sentence = 0; sentence < batch; ++sentence) choose(sentence);
    }
  }

  const StepRoutines& routines = step_routines();
};

}  // namespace

void add_candidates(Ort::CustomOpDomain& domain) {
  static const Operator<Candidates> candidates("Candidates", {FLOAT, FLOAT, INT64}, {FLOAT, INT64, INT64});
  domain.Add(&candidates);
}

}  // namespace xformc
