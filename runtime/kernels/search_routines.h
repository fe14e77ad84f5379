// The scan of logits for any kind of vector; see attend_routines.h, which comes before this one.

namespace xformc {
namespace {

INLINE void offer(Best& best, float logit, int64_t token) {
  if (best.size == best.most && !(logit > best.logit[best.most - 1])) return;
  int64_t place = best.size < best.most ? best.size++ : best.most - 1;
  for (; place > 0 && logit > best.logit[place - 1]; --place) {
    best.logit[place] = best.logit[place - 1];
    best.token[place] = best.token[place - 1];
  }
  best.logit[place] = logit;
  best.token[place] = token;
}

constexpr int LANES = 4 * WIDTH;

// A number that `most` of the logits at least reach, if that can be known from the highest of each lane; else -inf.
INLINE float reached_by(int64_t most, const float* lanes) {
  if (most > LANES) return -__builtin_inff();
  float sorted[LANES];
  for (int i = 0; i < LANES; ++i) {
    int place = i < most ? i : static_cast<int>(most);
    for (; place > 0 && lanes[i] > sorted[place - 1]; --place) {
      if (place < most) sorted[place] = sorted[place - 1];
    }
    if (place < most) sorted[place] = lanes[i];
  }
  return sorted[most - 1];
}

void scan(const float* logits, int64_t first, int64_t count, Best& best, float& highest, double& sum) {
  const float never = -__builtin_inff();
  const int left = static_cast<int>(count % WIDTH);
  const int64_t whole = count - left;
  Float most[4], sums[4];
  for (int i = 0; i < 4; ++i) {
    most[i] = Vector::all(never);
    sums[i] = Vector::all(0);
  }
  int64_t j = 0;
  for (; j + LANES <= count; j += LANES) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) most[i] = Vector::max(most[i], Vector::load(logits + j + i * WIDTH));
  }
  for (int i = 0; j < whole; j += WIDTH) most[i] = Vector::max(most[i], Vector::load(logits + j)), ++i;
  if (left > 0) most[3] = Vector::max(most[3], Vector::load_some(logits + whole, left, never));

  float reached = never;
  if (best.size < best.most) {
    float lanes[LANES];
    for (int i = 0; i < 4; ++i) Vector::store(lanes + i * WIDTH, most[i]);
    reached = reached_by(best.most, lanes);
  } else {
    reached = best.logit[best.most - 1];
  }
  highest = Vector::highest(Vector::max(Vector::max(most[0], most[1]), Vector::max(most[2], most[3])));
  const Float base = Vector::all(highest), enough = Vector::all(reached);
  const auto add = [&](Float values, int i, int64_t at, unsigned lanes) __attribute__((always_inline)) {
    unsigned found = Vector::at_least(values, enough) & lanes;
    sums[i] = Vector::add(sums[i], exp_of(Vector::sub(values, base)));
    if (__builtin_expect(found != 0, 0)) {
      for (; found != 0; found &= found - 1) {
        const int lane = __builtin_ctz(found);
        offer(best, logits[at + lane], first + at + lane);
      }
    }
  };
  for (j = 0; j + LANES <= count; j += LANES) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) add(Vector::load(logits + j + i * WIDTH), i, j + i * WIDTH, ~0u);
  }
  for (int i = 0; j < whole; j += WIDTH) add(Vector::load(logits + j), i++, j, ~0u);
  if (left > 0) add(Vector::load_some(logits + whole, left, never), 3, whole, (1u << left) - 1);
  sum = Vector::sum_double(Vector::add(Vector::add(sums[0], sums[1]), Vector::add(sums[2], sums[3])));
}

}  // namespace
}  // namespace xformc
