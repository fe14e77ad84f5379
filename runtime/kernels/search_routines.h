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

constexpr int HALVINGS = 6;

// A number that `most` of the logits at least reach, and not many more, if that can be known from the highest of each
// lane; else -inf. The number is between the least and the largest of these, and found by halving.
INLINE float reached_by(int64_t most, const Float* lanes) {
  Float least = Vector::sub(Vector::all(0), lanes[0]), largest = lanes[0];
  for (int i = 1; i < 4; ++i) {
    least = Vector::max(least, Vector::sub(Vector::all(0), lanes[i]));
    largest = Vector::max(largest, lanes[i]);
  }
  float low = -Vector::highest(least), high = Vector::highest(largest);
  if (most > LANES || !(low > -__builtin_inff())) return -__builtin_inff();
  for (int i = 0; i < HALVINGS; ++i) {
    const float middle = low + (high - low) / 2;
    int count = 0;
    for (int j = 0; j < 4; ++j) count += __builtin_popcount(Vector::at_least(lanes[j], Vector::all(middle)));
    (count >= most ? low : high) = middle;
  }
  return low;
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
    reached = reached_by(best.most, most);
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

int64_t collect(const float* logits, int64_t count, float least, float* found, int32_t* places) {
  const Float enough = Vector::all(least);
  int64_t size = 0;
  for (int64_t j = 0; j < count; j += WIDTH) {
    const bool whole = j + WIDTH <= count;
    const Float values =
        whole ? Vector::load(logits + j) : Vector::load_some(logits + j, static_cast<int>(count - j), 0);
    const unsigned kept = Vector::at_least(values, enough) & (whole ? ~0u : (1u << (count - j)) - 1);
    if (kept != 0) {
      Vector::compress(values, static_cast<int32_t>(j), kept, found + size, places + size);
      size += __builtin_popcount(kept);
    }
  }
  return size;
}

void weigh(const float* logits, int64_t count, float highest, float divisor, float* weights) {
  const Float base = Vector::all(highest),
              factor = Vector::all(std::min(1 / divisor, std::numeric_limits<float>::max()));
  for (int64_t j = 0; j < count; j += WIDTH) {
    const int left = static_cast<int>(std::min<int64_t>(count - j, WIDTH));
    const Float values = left == WIDTH ? Vector::load(logits + j) : Vector::load_some(logits + j, left, highest);
    const Float found = exp_of(Vector::mul(Vector::sub(values, base), factor));
    left == WIDTH ? Vector::store(weights + j, found) : Vector::store_some(weights + j, found, left);
  }
}

}  // namespace
}  // namespace xformc
