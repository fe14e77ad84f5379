// Candidates, Advance and Cache (docs/kernels.md): the steps of the search between two steps of the decoder.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attend.h"
#include "kernel.h"

namespace xformc {
namespace {

constexpr int64_t ENOUGH_PARTS = 8;  // work is split no further than this
constexpr float NEVER = -std::numeric_limits<float>::infinity();

struct Cache {
  explicit Cache(const OrtKernelInfo*) {}

  void Compute(OrtKernelContext* raw) {
    Ort::KernelContext context(raw);
    const Ort::ConstValue sizes = context.GetInput(0);
    const int64_t* data = sizes.GetTensorData<int64_t>();
    context.GetOutput(0, Shape(data, data + sizes.GetTensorTypeAndShapeInfo().GetElementCount()));
  }
};

// The best of what is offered, best first; of equal ones, what was offered first.
template <typename Item>
class Ranking {
 public:
  explicit Ranking(int64_t most) : most_(static_cast<size_t>(most)) { items_.reserve(most_ + 1); }

  void offer(float score, const Item& item) {
    if (items_.size() == most_ && !(score > items_.back().first)) return;
    auto place = items_.end();
    while (place != items_.begin() && !(std::prev(place)->first >= score)) --place;
    items_.insert(place, {score, item});
    if (items_.size() > most_) items_.pop_back();
  }
  const std::pair<float, Item>& operator[](int64_t i) const { return items_[static_cast<size_t>(i)]; }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  size_t most_;
  std::vector<std::pair<float, Item>> items_;
};

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
    const int64_t count = 2 * *context.GetInput(2).GetTensorData<int64_t>();
    const Shape shape = shape_of(scores), whole = shape_of(logits);
    const int64_t batch = shape.at(0), beam = shape.at(1), vocabulary = whole.back();
    require(count >= 2, "the beam's width must be at least 1");
    require(vocabulary >= count, "the vocabulary is smaller than twice the beam's width");
    require(product(whole, 0, whole.size()) == batch * beam * vocabulary, "logits and scores do not fit");
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

struct Advance {
  explicit Advance(const OrtKernelInfo*) {}

  void Compute(OrtKernelContext* raw) {
    Ort::KernelContext context(raw);
    const auto ids = [&](size_t index) { return context.GetInput(index).GetTensorData<int64_t>(); };
    const auto floats = [&](size_t index) { return context.GetInput(index).GetTensorData<float>(); };
    const int64_t width = *ids(0), end_token = *ids(1), position = *ids(3), count = 2 * width;
    const float length_penalty = *floats(2);
    const bool* done = context.GetInput(4).GetTensorData<bool>();
    const int64_t* limit = ids(5);
    const float* scores = floats(6);
    const int64_t *ended_with = ids(7), *parents = ids(8), *tokens = ids(9), *ancestors = ids(10);
    const int64_t *pool_tokens = ids(11), *pool_lengths = ids(12);
    const float* pool_scores = floats(13);
    const int64_t* found = ids(14);
    const Shape shape = shape_of(context.GetInput(9));
    const int64_t batch = shape.at(0), length = shape.at(2), next = position + 1;
    const auto has = [&](size_t index, const Shape& wanted) {
      if (shape_of(context.GetInput(index)) != wanted) fail("input " + std::to_string(index) + " has a wrong shape");
    };
    for (size_t i : {4, 5, 14}) has(i, {batch});
    for (size_t i : {6, 7, 8}) has(i, {batch, count});
    for (size_t i : {9, 11}) has(i, {batch, width, length});
    for (size_t i : {12, 13}) has(i, {batch, width});
    has(10, {batch, width, position});
    for (int64_t i = 0; i < batch * count; ++i) require(parents[i] >= 0 && parents[i] < width, "no such parent");

    bool* go_on = context.GetOutput(0, nullptr, 0).GetTensorMutableData<bool>();
    *context.GetOutput(1, nullptr, 0).GetTensorMutableData<int64_t>() = next;
    bool* new_done = context.GetOutput(2, {batch}).GetTensorMutableData<bool>();
    int64_t* new_tokens = context.GetOutput(3, {batch, width, length + 1}).GetTensorMutableData<int64_t>();
    float* new_scores = context.GetOutput(4, {batch, width}).GetTensorMutableData<float>();
    int64_t* new_pool_tokens = context.GetOutput(5, {batch, width, length + 1}).GetTensorMutableData<int64_t>();
    int64_t* new_pool_lengths = context.GetOutput(6, {batch, width}).GetTensorMutableData<int64_t>();
    float* new_pool_scores = context.GetOutput(7, {batch, width}).GetTensorMutableData<float>();
    int64_t* new_found = context.GetOutput(8, {batch}).GetTensorMutableData<int64_t>();
    int64_t* new_ancestors = context.GetOutput(9, {batch, width, next}).GetTensorMutableData<int64_t>();

    const float penalty = std::pow((static_cast<float>(next) + 5.0f) / 6.0f, length_penalty);
    int64_t finished = 0;
    for (int64_t sentence = 0; sentence < batch; ++sentence) {
      const bool last = limit[sentence] <= next;
      const int64_t first = sentence * width;
      Ranking<int64_t> pool(width), open(width);
      int64_t more = 0;
      for (int64_t i = 0; i < width; ++i) pool.offer(pool_scores[first + i], i);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t candidate = sentence * count + i;
        const bool ended = ended_with[candidate] == end_token;
        open.offer(ended ? NEVER : scores[candidate], i);
        if (i >= width) continue;
        const bool ends = (ended || last) && !done[sentence];
        pool.offer(ends ? scores[candidate] / penalty : NEVER, width + i);
        more += ends;
      }
      const auto continued = [&](int64_t candidate, int64_t* out) {
        candidate += sentence * count;
        std::copy_n(tokens + (first + parents[candidate]) * length, length, out);
        out[length] = ended_with[candidate];
      };
      for (int64_t i = 0; i < width; ++i) {
        int64_t* out = new_pool_tokens + (first + i) * (length + 1);
        const auto [score, chosen] = pool[i];
        new_pool_scores[first + i] = score;
        if (chosen < width) {
          new_pool_lengths[first + i] = pool_lengths[first + chosen];
          std::copy_n(pool_tokens + (first + chosen) * length, length, out);
          out[length] = 0;
        } else {
          new_pool_lengths[first + i] = next;
          continued(chosen - width, out);
        }
      }
      for (int64_t i = 0; i < width; ++i) {
        const auto [score, chosen] = open[i];
        const int64_t parent = parents[sentence * count + chosen];
        new_scores[first + i] = score;
        continued(chosen, new_tokens + (first + i) * (length + 1));
        int64_t* out = new_ancestors + (first + i) * next;
        std::copy_n(ancestors + (first + parent) * position, position, out);
        out[position] = parent;
      }
      new_found[sentence] = found[sentence] + more;
      new_done[sentence] = done[sentence] || last || new_found[sentence] >= width;
      finished += new_done[sentence];
    }
    *go_on = finished * 8 < batch;
  }
};

}  // namespace

void add_search(Ort::CustomOpDomain& domain) {
  static const Operator<Cache> cache("Cache", {INT64}, {FLOAT});
  static const Operator<Candidates> candidates("Candidates", {FLOAT, FLOAT, INT64}, {FLOAT, INT64, INT64});
  static const Operator<Advance> advance(
      "Advance",
      {INT64, INT64, FLOAT, INT64, BOOL, INT64, FLOAT, INT64, INT64, INT64, INT64, INT64, INT64, FLOAT, INT64},
      {BOOL, INT64, BOOL, INT64, FLOAT, INT64, INT64, FLOAT, INT64, INT64});
  domain.Add(&cache);
  domain.Add(&candidates);
  domain.Add(&advance);
}

}  // namespace xformc
