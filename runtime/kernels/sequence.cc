// Sequence and While (docs/kernels.md): nodes of the other operators and of ONNX's own, run one after another without ONNX
// Runtime between them, once or until they say that it is enough.
#include <algorithm>
#include <chrono>
#include <sstream>

#include "kernel.h"

namespace xformc {
namespace {

constexpr int64_t MOST_VALUES = 1 << 14;  // of a sequence: more are a lie
constexpr int64_t NONE = -1;              // an input that is left out
constexpr int64_t KEPT_BYTES = 4 << 20;   // of a memory after a call: allocating more costs little beside filling it
constexpr size_t KEPT = 64;               // memories

// Where a value of a node is stored: in a result, or in memory of the calling thread, which values share.
struct Place {
  bool is_result;
  size_t index;
};

// The memories of the calling thread; at the end of a call, of one that fails too, those that are large are freed.
class Memories {
 public:
  ~Memories() {
    if (all().size() > KEPT) all().resize(KEPT);
    for (Buffer& memory : all()) memory.keep(KEPT_BYTES);
  }

  void* at_least(size_t index, int64_t bytes) {
    if (all().size() <= index) all().resize(index + 1);
    return all()[index].at_least<char>(std::max<int64_t>(bytes, 1));
  }

 private:
  static std::vector<Buffer>& all() {
    static thread_local std::vector<Buffer> own;
    return own;
  }
};

int64_t bytes_of(Element type, const Shape& shape) { return times(product(shape, 0, shape.size()), size_of(type)); }

struct Link {
  const Operator* op;
  std::unique_ptr<Kernel> kernel;
  std::vector<int64_t> inputs;  // the numbers of values, or NONE
  int64_t first;                // the number of its first output
  size_t outputs;
};

// Takes the numbers of a list one by one.
class Numbers {
 public:
  explicit Numbers(std::vector<int64_t> all) : all_(std::move(all)) {}
  int64_t next() {
    require(place_ < all_.size(), "a list is too short");
    return all_[place_++];
  }
  void finish() const { require(place_ == all_.size(), "a list is too long"); }

 private:
  std::vector<int64_t> all_;
  size_t place_ = 0;
};

// The nodes of a sequence, and where their values are stored. The values have numbers: first those that are given.
class Links {
 public:
  explicit Links(const Attributes& attributes) : given_(attributes.integer("given")), values_(given_) {
    require(given_ >= 0 && given_ <= MOST_VALUES, "`given` is no number of inputs");
    Numbers inputs(attributes.integers("operands")), input_counts(attributes.integers("operand_counts")),
        output_counts(attributes.integers("output_counts"));
    std::istringstream kinds(attributes.text("kinds"));
    for (std::string kind; kinds >> kind;) {
      Link link{find(kind), nullptr, {}, values_, 0};
      const int64_t taken = input_counts.next(), made = output_counts.next();
      require(taken >= 0 && made >= 1 && made <= MOST_VALUES - values_, "a count is too small or too large");
      for (int64_t i = 0; i < taken; ++i) {
        link.inputs.push_back(inputs.next());
        require(link.inputs.back() >= NONE && link.inputs.back() < values_, "an input is no earlier value");
      }
      link.outputs = static_cast<size_t>(made);
      for (size_t i = 0; i < link.outputs; ++i) types_.push_back(link.op->output_type(i, link.outputs));
      link.kernel = link.op->make(attributes.behind("node" + std::to_string(links_.size()) + "_"));
      values_ += made;
      links_.push_back(std::move(link));
    }
    inputs.finish();
    input_counts.finish();
    output_counts.finish();
    place_values(attributes.integers("results"));
  }

  int64_t given() const { return given_; }
  size_t memories() const { return memories_; }  // those that values share
  size_t results() const { return results_.size(); }
  int64_t result(size_t index) const { return results_[index]; }  // its number

  // The inputs of a call, with room for the values of the nodes.
  std::vector<Value> read(const Context& context) const {
    require(context.input_count() == static_cast<size_t>(given_), "the number of inputs does not fit");
    require(context.output_count() == results(), "the number of outputs does not fit");
    std::vector<Value> values(static_cast<size_t>(values_));
    for (int64_t i = 0; i < given_; ++i) values[static_cast<size_t>(i)] = context.input(static_cast<size_t>(i));
    return values;
  }

  // Runs the nodes. `whole` makes the memory of the results. The types of a node's inputs are the same in all calls.
  void run(const Context& whole, std::vector<Value>& values, Memories& memories) {
    const bool check = !checked_.load(std::memory_order_relaxed);
    for (size_t i = 0; i < links_.size(); ++i) {
      try {
        const Link& link = links_[i];
        const Call call(*this, link, whole, values.data(), memories);
        if (check) link.op->check_inputs(call);
        Value* const made = values.data() + link.first;
        for (size_t j = 0; j < link.outputs; ++j) made[j].type = ANY;
        link.kernel->run(call);
        for (size_t j = 0; j < link.outputs; ++j) require(made[j], "an output was not made");
      } catch (const Ort::Exception& error) {
        const std::string place = "node " + std::to_string(i) + " of the sequence: ";
        throw Ort::Exception(place + error.what(), error.GetOrtErrorCode());
      }
    }
    checked_.store(true, std::memory_order_relaxed);
  }

 private:
  // One call of a node.
  class Call : public Context {
   public:
    Call(const Links& links, const Link& link, const Context& whole, Value* values, Memories& memories)
        : Context(whole.threads()), links_(links), link_(link), whole_(whole), values_(values), memories_(memories) {}

    size_t input_count() const override { return link_.inputs.size(); }
    size_t output_count() const override { return link_.outputs; }
    const Value& input(size_t index) const override {
      return index < link_.inputs.size() && link_.inputs[index] != NONE ? values_[link_.inputs[index]] : no_value();
    }
    void* make_output(size_t index, const Shape& shape, Element given) const override {
      require(index < link_.outputs, "there is no such output");
      const int64_t number = link_.first + static_cast<int64_t>(index);
      const Element said = links_.types_[links_.made(number)], type = said == ANY ? given : said;
      require(type != ANY, "the type of an output is not known");
      const Place place = links_.places_[links_.made(number)];
      void* data = place.is_result ? whole_.make_output(place.index, shape, type)
                                   : memories_.at_least(place.index, bytes_of(type, shape));
      values_[number] = {type, shape, data};
      return data;
    }

   private:
    const Links& links_;
    const Link& link_;
    const Context& whole_;
    Value* values_;
    Memories& memories_;
  };

  // The place of a value among those that nodes make.
  size_t made(int64_t number) const { return static_cast<size_t>(number - given_); }

  static bool composite(const std::string& kind) { return kind == "Sequence" || kind == "While"; }

  static const Operator* find(const std::string& kind) {
    for (const Operators* all : {&operators(), &standard_operators()}) {
      for (const Operator* op : *all) {
        if (op->name() == kind && !composite(kind)) return op;
      }
    }
    fail("there is no operator " + kind);
  }

  // Finds where values are stored. Those that live at the same time have memories of their own.
  void place_values(const std::vector<int64_t>& results) {
    results_ = results;
    places_.assign(types_.size(), {false, 0});
    std::vector<size_t> last(types_.size(), 0);  // the last node that reads a value
    for (size_t i = 0; i < links_.size(); ++i) {
      for (size_t j = 0; j < links_[i].outputs; ++j) last[made(links_[i].first) + j] = i;
      for (const int64_t number : links_[i].inputs) {
        if (number >= given_) last[made(number)] = i;
      }
    }
    for (size_t i = 0; i < results.size(); ++i) {
      require(results[i] >= given_ && results[i] < values_, "a result is no value of a node");
      Place& place = places_[made(results[i])];
      require(!place.is_result, "two results are the same value");
      place = {true, i};
    }
    std::vector<size_t> busy;  // by memory: the first node that may have it again
    for (size_t i = 0; i < links_.size(); ++i) {
      for (size_t j = 0; j < links_[i].outputs; ++j) {
        const size_t value = made(links_[i].first) + j;
        if (places_[value].is_result) continue;
        size_t memory = 0;
        while (memory < busy.size() && busy[memory] > i) ++memory;
        if (memory == busy.size()) busy.push_back(0);
        busy[memory] = last[value] + 1;
        places_[value].index = memory;
      }
    }
    memories_ = busy.size();
  }

  int64_t given_, values_;  // how many values are given, and how many there are
  size_t memories_ = 0;
  std::atomic<bool> checked_{false};
  std::vector<int64_t> results_;
  std::vector<Link> links_;
  std::vector<Element> types_;  // of the values that nodes make,
  std::vector<Place> places_;   // and where they are
};

struct Sequence : Kernel {
  explicit Sequence(const Attributes& attributes) : links_(attributes) {}

  void run(const Context& context) override {
    std::vector<Value> values = links_.read(context);
    Memories memories;
    links_.run(context, values, memories);
  }

 private:
  Links links_;
};

// One turn of a While, whose results are in memory of the calling thread: two turns after each other have two of them.
class Turn : public Context {
 public:
  Turn(const Context& whole, const Links& links, Memories& memories, size_t turn)
      : Context(whole.threads()), links_(links), memories_(memories),
        first_(links.memories() + turn % 2 * links.results()) {}

  size_t input_count() const override { return 0; }
  size_t output_count() const override { return links_.results(); }
  const Value& input(size_t) const override { return no_value(); }
  void* make_output(size_t index, const Shape& shape, Element type) const override {
    return memories_.at_least(first_ + index, bytes_of(type, shape));
  }

 private:
  const Links& links_;
  Memories& memories_;
  size_t first_;
};

// The first result says whether there is another turn, and the others are what it begins with.
struct While : Kernel {
  explicit While(const Attributes& attributes) : links_(attributes), carried_(attributes.integers("carried")) {
    require(carried_.size() + 1 == links_.results(), "a result is carried to no place");
    for (const int64_t place : carried_) {
      require(place >= NONE && place < links_.given(), "a result is carried to no input");
    }
  }

  void run(const Context& context) override {
    std::vector<Value> values = links_.read(context);
    Memories memories;
    const auto result = [&](size_t i) -> Value& { return values[static_cast<size_t>(links_.result(i))]; };
    const auto end = std::chrono::steady_clock::now() + LONGEST;
    for (size_t turn = 0;; ++turn) {
      links_.run(Turn(context, links_, memories, turn), values, memories);
      require(result(0).type == BOOL && result(0).count() == 1, "whether there is another turn is no bool");
      if (*result(0).as<uint8_t>() == 0 || std::chrono::steady_clock::now() >= end) break;
      for (size_t i = 0; i < carried_.size(); ++i) {
        if (carried_[i] == NONE) continue;
        Value& next = values[static_cast<size_t>(carried_[i])];
        require(next.type == result(i + 1).type, "a value changes its type from turn to turn");
        next = result(i + 1);
      }
    }
    for (size_t i = 0; i < links_.results(); ++i) {
      const Value& value = result(i);
      std::copy_n(static_cast<const char*>(value.data), bytes_of(value.type, value.shape),
                  static_cast<char*>(context.make_output(i, value.shape, value.type)));
    }
  }

 private:
  // A call can be stopped between two nodes of a model only.
  static constexpr std::chrono::milliseconds LONGEST{5};

  Links links_;
  std::vector<int64_t> carried_;  // for each result but the first, the given value that it is in the next turn, or NONE
};

}  // namespace

void add_sequence(Operators& all) {
  static const Operator sequence("Sequence", make_kernel<Sequence>, {ANY}, {ANY}, SIZE_MAX, true, true);
  static const Operator loop("While", make_kernel<While>, {ANY}, {ANY}, SIZE_MAX, true, true);
  for (const Operator* one : {&sequence, &loop}) all.push_back(one);
}

}  // namespace xformc
