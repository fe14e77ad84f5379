// Shortlist and ShortlistCandidates (docs/kernels.md): candidates among the tokens that a source makes likely, by a product
// with their weights alone.
#include <cstring>

#include "search_vocabulary.h"

namespace xformc {
namespace {

constexpr int64_t NO_TOKEN = -1,
                  ALL_TOKENS = -2;  // what follows the tokens of a list; the first token of one of them all

// How many scales a token has.
int64_t groups_of(Precision precision, int64_t depth) { return scale_count(precision, PANEL, depth) / PANEL; }

// The weights of a projection onto the vocabulary, from the input `index` on: its numbers, scale, rest and bias.
struct Vocabulary {
  Vocabulary(const Context& context, size_t index, Precision precision_, int64_t tokens, int64_t depth_)
      : precision(precision_), depth(depth_),
        weight(bind_vocabulary(context, index, index + 1, index + 3, precision, tokens, depth)) {
    const Value& rest = context.input(index + 2);
    require((precision == Precision::screened) == rest, "a rest comes with screened weights");
    if (rest) weight.screened = ScreenedRows(context.input(index), context.input(index + 1), rest, depth);
  }

  Precision precision;
  int64_t depth;
  Weight weight;
};

// The sizes of what a list of so many tokens has of them, and the precision of its panels.
struct ListSizes {
  ListSizes(const Vocabulary& all, int64_t longest)
      : precision(all.precision == Precision::screened ? Precision::float32 : all.precision),
        groups(groups_of(precision, all.depth)), panels(ceil_div(longest, PANEL)),
        panel_bytes(xformc::panel_bytes(precision, all.depth)), weights(times(panels, panel_bytes)),
        scales(has_scale(precision) ? times(panels, PANEL * groups) : 0),
        biases(all.weight.bias == nullptr ? 0 : panels * PANEL) {}

  Precision precision;
  int64_t groups, panels, panel_bytes;
  int64_t weights, scales, biases;  // in bytes, and in numbers
};

// Copies the numbers of a column of a panel, `size` bytes in each of so many steps, to a place of another panel.
template <size_t size>
void copy_column(const char* from, int64_t column, int64_t steps, char* to, int64_t place) {
  for (int64_t step = 0; step < steps; ++step) {
    std::memcpy(to + (step * PANEL + place) * size, from + (step * PANEL + column) * size, size);
  }
}

// Copies the weights of some tokens to a panel, with their scales and biases, which may be null.
void copy_tokens(const Vocabulary& all, const int64_t* tokens, int64_t count, char* panel, float* scales,
                 float* biases) {
  const int64_t bytes = panel_bytes(all.precision, all.depth), groups = groups_of(all.precision, all.depth);
  std::vector<float> row(static_cast<size_t>(all.precision == Precision::screened ? all.depth : 0));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t token = tokens[i], column = token % PANEL;
    const char* from = all.weight.panels + token / PANEL * bytes;
    if (all.precision == Precision::screened) {
      all.weight.screened.copy(token, 1, row.data());
      for (int64_t k = 0; k < all.depth; ++k)
        reinterpret_cast<float*>(panel)[k * PANEL + i] = row[static_cast<size_t>(k)];
    } else if (all.precision == Precision::float16) {
      copy_column<2>(from, column, bytes / (2 * PANEL), panel, i);
    } else {
      copy_column<4>(from, column, bytes / (4 * PANEL), panel, i);
    }
    if (scales != nullptr) {
      const auto* scale = reinterpret_cast<const char*>(all.weight.scale + token / PANEL * PANEL * groups);
      copy_column<4>(scale, column, groups, reinterpret_cast<char*>(scales), i);
    }
    if (biases != nullptr) biases[i] = all.weight.bias[token];
  }
}

// What a batch of sources lists: the inputs 0 to 5 of Shortlist.
class Sources {
 public:
  Sources(const Context& context, int64_t vocabulary, int64_t pad) : vocabulary_(vocabulary), pad_(pad) {
    const Value sources = context.input(0), likely = context.input(1), common = context.input(2);
    require(sources.shape.size() == 2, "the sources are no rows of tokens");
    require(likely.shape.size() == 2 && common.shape.size() == 1, "the lists are no lists");
    batch_ = sources.shape[0];
    length_ = sources.shape[1];
    sources_ = sources.as<int64_t>();
    rows_ = likely.shape[0];
    most_ = likely.shape[1];
    likely_ = likely.as<int32_t>();
    common_count_ = common.shape[0];
    common_ = common.as<int32_t>();
    const Sentences sentences(context, context.input_count(), batch_);  // each is in the row of its number
    for (const size_t input : {3, 4}) {
      if (!context.input(input)) continue;
      asked_.push_back(context.input(input));
      require(asked_.back().shape.size() >= 2, "the beginnings or the phrases are no rows of tokens");
      sentences.check(asked_.back().shape[0]);
    }
    Option<int64_t> start(NO_TOKEN);
    start.read(context, 5, sentences);
    for (int64_t i = 0; i < batch_; ++i) all_.push_back(start.of(sentences, i) >= 0);
  }

  int64_t batch() const { return batch_; }

  // The tokens that may follow in a sentence, in order.
  std::vector<int64_t> list(int64_t sentence) const {
    if (all_[static_cast<size_t>(sentence)]) return {ALL_TOKENS};
    std::vector<uint64_t> marks(static_cast<size_t>(ceil_div(vocabulary_, 64)));
    const auto mark = [&](int64_t token) {
      if (token < 0) return;
      require(token < vocabulary_, "a list has a token that is not in the vocabulary");
      marks[static_cast<size_t>(token / 64)] |= uint64_t{1} << token % 64;
    };
    std::for_each_n(common_, common_count_, mark);
    for (int64_t i = sentence * length_; i < (sentence + 1) * length_; ++i) {
      require(sources_[i] >= 0 && sources_[i] < rows_, "a token of a source has no list");
      std::for_each_n(likely_ + sources_[i] * most_, most_, mark);
    }
    for (const Value& tokens : asked_) {
      const int64_t count = product(tokens.shape, 1, tokens.shape.size());
      const int64_t* own = tokens.as<int64_t>() + (tokens.shape[0] == 1 ? 0 : sentence * count);
      std::for_each_n(own, count, [&](int64_t token) { mark(token == pad_ ? NO_TOKEN : token); });
    }
    std::vector<int64_t> found;
    for (size_t i = 0; i < marks.size(); ++i) {
      for (uint64_t rest = marks[i]; rest != 0; rest &= rest - 1)
        found.push_back(static_cast<int64_t>(i) * 64 + __builtin_ctzll(rest));
    }
    require(!found.empty(), "a list has no token");
    return found;
  }

 private:
  int64_t vocabulary_, pad_;
  int64_t batch_, length_, rows_, most_, common_count_;
  const int64_t* sources_;
  const int32_t *likely_, *common_;
  std::vector<Value> asked_;
  std::vector<bool> all_;  // of each sentence
};

struct Shortlist : Kernel {
  explicit Shortlist(const Attributes& info)
      : precision(precision_of(info.text("precision"))), vocabulary(info.integer("vocabulary")),
        depth(info.integer("depth")), pad(info.integer_or("pad", 0)) {
    require(vocabulary >= 1 && depth >= 1, "a vocabulary has tokens and a depth");
  }

  void run(const Context& context) override {
    const Sources sources(context, vocabulary, pad);
    const Vocabulary all(context, 6, precision, vocabulary, depth);
    const int64_t batch = sources.batch();
    std::vector<std::vector<int64_t>> lists(static_cast<size_t>(batch));
    parallel(context, lists.size(), [&](size_t i) { lists[i] = sources.list(static_cast<int64_t>(i)); });

    size_t most = 0;
    for (const std::vector<int64_t>& list : lists) most = std::max(most, list.size());
    const int64_t longest = static_cast<int64_t>(most);
    const ListSizes sizes(all, longest);
    const int64_t panels = sizes.panels, bytes = sizes.panel_bytes, groups = sizes.groups;
    auto* tokens = context.output<int64_t>(0, {batch, longest});
    auto* weights = static_cast<char*>(context.make_output(1, {batch, sizes.weights}, ANY));
    auto* scales = context.output<float>(2, {batch, sizes.scales});
    auto* biases = context.output<float>(3, {batch, sizes.biases});
    std::fill_n(tokens, times(batch, longest), NO_TOKEN);
    parallel(context, static_cast<size_t>(times(batch, panels)), [&](size_t i) {
      const int64_t sentence = static_cast<int64_t>(i) / panels, panel = static_cast<int64_t>(i) % panels;
      const std::vector<int64_t>& list = lists[static_cast<size_t>(sentence)];
      const int64_t size = static_cast<int64_t>(list.size()), first = panel * PANEL;
      const int64_t count = std::clamp<int64_t>(size - first, 0, PANEL);
      std::copy_n(list.data() + std::min(first, size), count, tokens + sentence * longest + first);
      char* to = weights + (sentence * panels + panel) * bytes;
      std::memset(to, 0, static_cast<size_t>(bytes));
      float* scale = sizes.scales == 0 ? nullptr : scales + sentence * sizes.scales + first * groups;
      float* bias = sizes.biases == 0 ? nullptr : biases + sentence * sizes.biases + first;
      if (scale != nullptr) std::fill_n(scale, PANEL * groups, 0.0f);
      if (bias != nullptr) std::fill_n(bias, PANEL, 0.0f);
      if (count > 0 && list[0] != ALL_TOKENS) copy_tokens(all, list.data() + first, count, to, scale, bias);
    });
  }

  Precision precision;
  int64_t vocabulary, depth, pad;
};

// The lists of the sentences of a batch, with their weights.
class Lists {
 public:
  Lists(const Context& context, size_t index, const Vocabulary& all)
      : all_(all), rows_(shape_of(context.input(index))[0]), longest_(shape_of(context.input(index))[1]),
        sizes_(all, longest_) {
    require(context.input(index + 1).shape == Shape({rows_, sizes_.weights}) &&
                context.input(index + 2).shape == Shape({rows_, sizes_.scales}) &&
                context.input(index + 3).shape == Shape({rows_, sizes_.biases}),
            "the weights of the lists do not fit their tokens");
    tokens_ = context.input(index).as<int64_t>();
    weights_ = context.input(index + 1).as<char>();
    scales_ = context.input(index + 2).as<float>();
    biases_ = context.input(index + 3).as<float>();
  }

  struct List {
    const int64_t* tokens;  // null for all
    int64_t count;
    Precision precision;
    Weight weight;

    int64_t token(int64_t place) const { return tokens == nullptr ? place : tokens[place]; }
    // The place of a token, or -1.
    int64_t place(int64_t token) const {
      if (tokens == nullptr) return token;
      const int64_t* found = std::lower_bound(tokens, tokens + count, token);
      return found != tokens + count && *found == token ? found - tokens : -1;
    }
  };

  int64_t rows() const { return rows_; }

  List operator[](int64_t row) const {
    const int64_t* own = tokens_ + row * longest_;
    if (longest_ > 0 && own[0] == ALL_TOKENS) return {nullptr, all_.weight.outputs, all_.precision, all_.weight};
    const int64_t count = std::find(own, own + longest_, NO_TOKEN) - own;
    require(count > 0 && own[0] >= 0 && own[count - 1] < all_.weight.outputs, "a list has no tokens of the vocabulary");
    for (int64_t i = 1; i < count; ++i) require(own[i - 1] < own[i], "the tokens of a list are not in order");
    Weight weight;
    weight.outputs = count;
    weight.panels = weights_ + row * sizes_.weights;
    weight.scale = sizes_.scales == 0 ? nullptr : scales_ + row * sizes_.scales;
    weight.bias = sizes_.biases == 0 ? nullptr : biases_ + row * sizes_.biases;
    return {own, count, sizes_.precision, weight};
  }

 private:
  const Vocabulary& all_;
  static const Shape& shape_of(const Value& tokens) {
    require(tokens.shape.size() == 2, "the lists are no rows of tokens");
    return tokens.shape;
  }

  int64_t rows_, longest_;
  ListSizes sizes_;
  const int64_t* tokens_;
  const char* weights_;
  const float *scales_, *biases_;
};

struct ShortlistCandidates : Kernel {
  explicit ShortlistCandidates(const Attributes& info)
      : precision(precision_of(info.text("precision"))), vocabulary(info.integer("vocabulary")), written_(info) {}

  void run(const Context& context) override {
    Continuations continuations(context, vocabulary, PREFIX_INPUT, written_, true);
    const Value& input = context.input(0);
    const int64_t depth = depth_of(input, continuations), beam = continuations.beam;
    const Vocabulary all(context, 7, precision, vocabulary, depth);
    const Lists lists(context, 3, all);
    const Sentences sentences(context, PREFIX_INPUT + 8, continuations.batch);
    sentences.check(lists.rows());
    continuations.make_outputs(context);
    Scan scan(vocabulary, continuations.rows(), 1, continuations.most);
    parallel(context, static_cast<size_t>(continuations.batch), [&](size_t i) {
      const int64_t sentence = static_cast<int64_t>(i), first = sentence * beam;
      const Lists::List list = lists[sentences.row(sentence, lists.rows())];
      const int64_t panels = ceil_div(list.count, PANEL), stride = (panels + 1) * PANEL;
      static thread_local Buffer buffer;
      float* logits = buffer.at_least<float>(beam * stride);
      const PackedRows packed(routines(), list.precision, input.as<float>() + first * depth, beam, depth);
      packed.multiply(list.weight, {0, panels}, {0, packed.blocks()}, false,
                      {logits, stride, nullptr, Activation::none});
      for (int64_t row = 0; row < beam; ++row) {
        for (int64_t begin = 0; begin < list.count; begin += SCAN_BLOCK) {
          scan.look(first + row, 0, begin / SCAN_BLOCK, logits + row * stride + begin,
                    std::min(SCAN_BLOCK, list.count - begin), continuations.automaton);
        }
      }
      const auto logit_of = [&](int64_t row, int64_t token) {
        const int64_t place = list.place(token);
        return place < 0 ? -INFINITY : logits[(row - first) * stride + place];
      };
      continuations.choose(Found{scan, list}, sentence, logit_of);
    });
  }

 private:
  static constexpr size_t PREFIX_INPUT = 11;

  // The best tokens of a scan of places.
  struct Found {
    const Scan& scan;
    const Lists::List& list;

    float normalizer(int64_t row) const { return scan.normalizer(row); }
    Ranking<int64_t> best(int64_t row) const {
      const Ranking<int64_t> places = scan.best(row);
      Ranking<int64_t> result(places.size());
      for (const auto& [logit, place] : places) result.append(logit, list.token(place));
      return result;
    }
  };

  Precision precision;
  int64_t vocabulary;
  Written written_;
};

}  // namespace

void add_shortlist(Operators& all) {
  static const Operator shortlist("Shortlist", make_kernel<Shortlist>,
                                  {INT64, INT32, INT32, INT64, INT64, INT64, ANY, FLOAT, INT16, FLOAT},
                                  {INT64, INT8, FLOAT, FLOAT}, 3);
  static const Operator candidates(
      "ShortlistCandidates", make_kernel<ShortlistCandidates>,
      {FLOAT, FLOAT, INT64, INT64, INT8,  FLOAT, FLOAT, ANY,   FLOAT, INT16, FLOAT, INT64, INT64, INT64, INT64,
       INT64, FLOAT, FLOAT, FLOAT, INT64, INT64, FLOAT, INT32, INT64, INT64, INT64, INT64, FLOAT, INT64},
      {FLOAT, INT64, INT64}, 8);
  all.push_back(&shortlist);
  all.push_back(&candidates);
}

}  // namespace xformc
