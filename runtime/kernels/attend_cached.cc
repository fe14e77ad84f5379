// AttendCached and ExtendCached (docs/kernels.md): a step of causal self-attention over caches that are written in place,
// of one position for each hypothesis, and of several positions.
#include <cstring>

#include "attend_queries.h"
#include "cache.h"
#include "positions.h"

namespace xformc {
namespace {

// A cache [slots, capacity, beam, shared * depth]; with quantized numbers each depth has a scale before them.
template <typename Stored>
struct CacheView {
  CacheView(const StepRoutines& routines_, const Value& value, int64_t shared_, int64_t depth_)
      : routines(routines_), shape(value.shape), shared(shared_), depth(depth_),
        data(static_cast<Stored*>(const_cast<void*>(value.data))) {
    require(value.type == ELEMENT<Stored>, "caches are both float32, both float16 or both int8");
    require(shape.size() == 4 && shape[3] == times(shared, width()),
            "the cache's depth does not fit the key's or value's");
    require(is_cache(data, shape, sizeof(Stored)), "a cache must be a buffer of Cache, with room for this position");
  }

  int64_t capacity() const { return shape[1]; }
  int64_t beam() const { return shape[2]; }
  int64_t width() const { return static_cast<int64_t>(static_cast<uint64_t>(depth) + BEFORE<Stored>); }  // of a head
  int64_t step() const { return shared * width(); }
  int64_t newest_step() const { return shared * depth; }
  Stored* head(int64_t slot, int64_t head) const {
    return data + slot * capacity() * beam() * step() + head * width() + BEFORE<Stored>;
  }

  // Writes some heads of the newest rows [rows, shared, depth] of a sentence into the cache: those of the hypotheses at
  // this position.
  void write(const float* newest, int64_t rows, int64_t slot, int64_t position, int64_t first, int64_t last) const {
    write(newest, rows, head(slot, first) + position * beam() * step(), step(), first, last);
  }

  // The same for rows of the first hypothesis, at this position and the next ones.
  void extend(const float* newest, int64_t rows, int64_t slot, int64_t position, int64_t first, int64_t last) const {
    write(newest, rows, head(slot, first) + position * beam() * step(), beam() * step(), first, last);
  }

  const StepRoutines& routines;
  Shape shape;
  int64_t shared, depth;
  Stored* data;

 private:
  void write(const float* newest, int64_t rows, Stored* to, int64_t apart, int64_t first, int64_t last) const {
    newest += first * depth;
    const int64_t count = (last - first) * depth;
    for (int64_t i = 0; i < rows; ++i, newest += newest_step(), to += apart) {
      if constexpr (std::is_same_v<Stored, float>) {
        std::memmove(to, newest, count * sizeof(float));
      } else if constexpr (std::is_same_v<Stored, int8_t>) {
        for (int64_t head = 0; head < last - first; ++head) {
          routines.quantize(newest + head * depth, depth, to + head * width() - BEFORE<Stored>);
        }
      } else {
        routines.narrow(newest, count, to);
      }
    }
  }
};

// The rows of a cache that the hypotheses of one sentence see.
class Past {
 public:
  // Those of `keys` positions, the last of which is `position`. `ancestors` are [hypotheses, room], or null if each
  // hypothesis has been in its own beam; `beam` is the cache's.
  void find(const int64_t* ancestors, int64_t hypotheses, int64_t beam, int64_t position, int64_t room, int64_t keys) {
    hypotheses_ = hypotheses;
    keys_ = keys;
    rows_.resize(static_cast<size_t>(hypotheses * keys));
    const int64_t oldest = position + 1 - keys;
    for (int64_t hypothesis = 0; hypothesis < hypotheses; ++hypothesis) {
      int64_t* row = &rows_[static_cast<size_t>(hypothesis * keys)];
      for (int64_t i = oldest; i < position; ++i) {
        *row++ = i * beam + (ancestors == nullptr ? hypothesis : ancestors[hypothesis * room + i]);
      }
      *row = position * beam + hypothesis;
    }
    find_shared();
  }

  const int64_t* of(int64_t hypothesis) const { return &rows_[static_cast<size_t>(hypothesis * keys_)]; }
  int64_t shared() const { return shared_; }
  const std::vector<int64_t>& each_once() const { return each_once_; }

 private:
  // Finds the number of leading rows that all hypotheses share, and lists all rows, the shared ones only once.
  void find_shared() {
    shared_ = 0;
    for (bool same = true; same && shared_ < keys_;) {
      for (int64_t i = 1; i < hypotheses_; ++i) same = same && of(i)[shared_] == of(0)[shared_];
      shared_ += same;
    }
    each_once_.assign(of(0), of(0) + keys_);
    for (int64_t i = 1; i < hypotheses_; ++i) {
      for (int64_t j = shared_; j < keys_; ++j) {
        if (of(i)[j] != of(i - 1)[j]) each_once_.push_back(of(i)[j]);
      }
    }
  }

  int64_t hypotheses_ = 0, keys_ = 0, shared_ = 0;
  std::vector<int64_t> rows_, each_once_;
};

// The caches of a node and the newest keys and values, with what both operators require of them.
template <typename Stored>
struct Newest {
  Newest(const Context& context, const AttendAttributes& attributes, const StepRoutines& routines)
      : query(context.input(0)), key(context.input(1)), value(context.input(2)),
        keys(routines, context.input(3), attributes.shared, key.depth()),
        values(routines, context.input(4), attributes.shared, value.depth()) {}

  // `all` are the rows of the query, `at` the positions of the sentences, `positions` the number of new ones of each.
  void check(int64_t all, int64_t shared, const Positions& at, int64_t positions) const {
    const int64_t newest = times(all, shared);
    require(std::equal(keys.shape.begin(), keys.shape.begin() + 3, values.shape.begin()), "the caches differ in shape");
    require(key.depth() == query.depth() && key.size() == times(newest, key.depth()), "the key's axes do not fit");
    require(value.size() == times(newest, value.depth()), "the value's axes do not fit");
    require(at.first() >= 0 && positions <= keys.capacity() && at.last() <= keys.capacity() - positions,
            "the cache is full");
  }

  const Tensor<> query, key, value;
  const CacheView<Stored> keys, values;
};

// Attention over caches; Op has `compute`, for caches of each type.
template <typename Op>
struct OverCaches : Kernel {
  explicit OverCaches(const Attributes& info) : attributes(info), window(info.integer("window")) {}

  void run(const Context& context) override {
    const Op& op = static_cast<const Op&>(*this);
    for_stored(context.input(3), [&](auto stored) { op.template compute<decltype(stored)>(context); });
  }

  AttendAttributes attributes;
  int64_t window;
  const StepRoutines& routines = step_routines();
};

struct AttendCached : OverCaches<AttendCached> {
  using OverCaches::OverCaches;

  // How many ancestors each hypothesis has: those before the furthest position, and any more.
  static int64_t ancestors_of(const Context& context, int64_t furthest) {
    const Value& value = context.input(6);
    if (!value) return furthest;
    const Shape shape = value.shape;
    return shape.empty() ? furthest : std::max(furthest, shape.back());
  }

  template <typename Stored>
  void compute(const Context& context) const {
    const Newest<Stored> newest(context, attributes, routines);
    const auto& [query, key, value, keys, values] = newest;
    Queries queries(attributes, query, value.depth());
    const Slots slots(context, 7, queries.batch, keys.shape[0]);
    require(slots.differ(queries.batch), "two sentences have the same slot");
    const int64_t beam = keys.beam(), hypotheses = queries.rows, all = times(queries.batch, hypotheses);
    require(hypotheses <= beam, "the cache was made for fewer hypotheses");
    const Positions positions(context, 5, queries.batch);
    newest.check(all, queries.shared, positions, 1);
    const int64_t furthest = positions.last(), room = ancestors_of(context, furthest), past = times(all, room);
    const int64_t* ancestors =
        optional_input<int64_t>(context, 6, past, "there must be one ancestor for each position before");
    const int64_t most = window > 0 ? std::min(window, furthest + 1) : furthest + 1;
    const Bias bias(context, 8, queries, most);
    bool known = true;
    for (int64_t i = 0; ancestors != nullptr && i < past; ++i) {
      known &= static_cast<uint64_t>(ancestors[i]) < static_cast<uint64_t>(beam);
    }
    require(known, "an ancestor is outside of the beam");
    queries.make_output(context, query.shape);

    for_each_head(context, queries, most, [&](int64_t sentence, int64_t first, int64_t last) {
      const int64_t own = sentence * hypotheses, slot = slots[sentence], position = positions[sentence];
      const int64_t count = std::min(most, position + 1);
      const int64_t* own_ancestors = ancestors == nullptr ? nullptr : ancestors + own * room;
      static thread_local Past past;
      past.find(own_ancestors, hypotheses, beam, position, room, count);
      float* space = scratch(scratch_size(count));
      keys.write(key.data + own * keys.newest_step(), hypotheses, slot, position, first, last);
      values.write(value.data + own * values.newest_step(), hypotheses, slot, position, first, last);
      for (int64_t head = first; head < last; ++head) {
        const int64_t ahead = head + 1 < last ? static_cast<int64_t>(past.each_once().size()) : 0;
        const Memory<Stored> memory{
            keys.head(slot, head), values.head(slot, head), keys.step(),    values.step(),           keys.depth,
            values.depth,          attributes.scale,        attributes.cap, past.each_once().data(), ahead};
        if (head == first) fetch_rows(memory, past.each_once());
        Groups<Stored> groups(routines, memory, past.shared(), space);
        for (int64_t hypothesis = 0; hypothesis < hypotheses; ++hypothesis) {
          for (int64_t r = 0; r < queries.repeated; ++r) {
            const float* row_bias = bias.of(hypothesis, head, r);
            groups.add(queries.query(sentence, hypothesis, head, r), queries.out(sentence, hypothesis, head, r),
                       past.of(hypothesis), count, row_bias == nullptr ? nullptr : row_bias + (most - count), nullptr);
          }
        }
        groups.finish();
      }
    });
  }
};

struct ExtendCached : OverCaches<ExtendCached> {
  using OverCaches::OverCaches;

  template <typename Stored>
  void compute(const Context& context) const {
    const Newest<Stored> newest(context, attributes, routines);
    const auto& [query, key, value, keys, values] = newest;
    Queries queries(attributes, query, value.depth());
    const Slots slots(context, 6, queries.batch, keys.shape[0]);
    require(slots.differ(queries.batch), "two sentences have the same slot");
    const int64_t positions = queries.rows, beam = keys.beam();
    require(beam >= 1, "the cache was made for fewer hypotheses");
    const Positions at(context, 5, queries.batch);
    newest.check(times(queries.batch, positions), queries.shared, at, positions);
    const int64_t most = positions + (window > 0 ? std::min(window, at.last()) : at.last());
    const Bias bias(context, 7, queries, most);
    queries.make_output(context, query.shape);
    if (query.size() == 0) return;

    std::vector<int64_t> rows(static_cast<size_t>(at.last() + positions));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i) * beam;
    for_each_head(context, queries, most, [&](int64_t sentence, int64_t first, int64_t last) {
      const int64_t own = sentence * positions, slot = slots[sentence], position = at[sentence];
      const int64_t oldest = window > 0 ? std::max<int64_t>(0, position - window) : 0;
      const int64_t count = position + positions - oldest, unseen = most - count;
      float* space = scratch(scratch_size(count));
      keys.extend(key.data + own * keys.newest_step(), positions, slot, position, first, last);
      values.extend(value.data + own * values.newest_step(), positions, slot, position, first, last);
      for (int64_t head = first; head < last; ++head) {
        Memory<Stored> memory{
            keys.head(slot, head), values.head(slot, head), keys.step(),    values.step(),        keys.depth,
            values.depth,          attributes.scale,        attributes.cap, rows.data() + oldest, 0};
        const int64_t together = window > 0 ? 0 : positions * queries.repeated;
        pack_keys(routines, memory, rows.data(), count, together);
        Groups<Stored> groups(routines, memory, window > 0 ? 0 : count, space);
        for (int64_t i = 0; i < positions; ++i) {
          const int64_t end = position + i + 1, from = window > 0 ? std::max(oldest, end - window) : 0;
          for (int64_t r = 0; r < queries.repeated; ++r) {
            const float* row_bias = bias.of(i, head, r);
            groups.add(queries.query(sentence, i, head, r), queries.out(sentence, i, head, r), rows.data() + from,
                       end - from, row_bias == nullptr ? nullptr : row_bias + (unseen + from - oldest), nullptr);
          }
        }
        groups.finish();
      }
    });
  }
};

}  // namespace

void add_cached_attention(Operators& all) {
  static const Operator cached("AttendCached", make_kernel<AttendCached>,
                               {FLOAT, FLOAT, FLOAT, ANY, ANY, INT64, INT64, INT64, FLOAT}, {FLOAT}, 6);
  static const Operator extended("ExtendCached", make_kernel<ExtendCached>,
                                 {FLOAT, FLOAT, FLOAT, ANY, ANY, INT64, INT64, FLOAT}, {FLOAT}, 6);
  all.push_back(&cached);
  all.push_back(&extended);
}

}  // namespace xformc
