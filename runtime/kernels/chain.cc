// Chain (docs/kernels.md): nodes of the other operators, run one after another without ONNX Runtime between them.
#include <sstream>

#include "kernel.h"

namespace xformc {
namespace {

constexpr int64_t MOST_VALUES = 1 << 14;  // of a chain: more are a lie
constexpr int64_t NONE = -1;              // an input that is left out
constexpr int64_t KEPT_BYTES = 4 << 20;   // of a memory after a call: allocating more costs little beside filling it
constexpr size_t KEPT = 16;               // memories

// Where a value of a node is stored: in an output of the chain, or in memory of the calling thread, which values share.
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
    require(place_ < all_.size(), "Chain: a list is too short");
    return all_[place_++];
  }
  void finish() const { require(place_ == all_.size(), "Chain: a list is too long"); }

 private:
  std::vector<int64_t> all_;
  size_t place_ = 0;
};

int64_t size_of(Element type) {
  switch (type) {
    case BOOL:
    case INT8: return 1;
    case FLOAT16: return 2;
    case INT64: return 8;
    default: return 4;
  }
}

struct Chain : Kernel {
  explicit Chain(const Attributes& attributes) : given_(attributes.integer("given")) {
    require(given_ >= 0 && given_ <= MOST_VALUES, "Chain: `given` is no number of inputs");
    Numbers inputs(attributes.integers("operands")), input_counts(attributes.integers("operand_counts")),
        output_counts(attributes.integers("output_counts"));
    std::istringstream kinds(attributes.text("kinds"));
    values_ = given_;
    for (std::string kind; kinds >> kind;) {
      Link link{find(kind), nullptr, {}, values_, 0};
      const int64_t taken = input_counts.next(), made = output_counts.next();
      require(taken >= 0 && made >= 1 && made <= MOST_VALUES - values_, "Chain: a count is too small or too large");
      for (int64_t i = 0; i < taken; ++i) {
        link.inputs.push_back(inputs.next());
        require(link.inputs.back() >= NONE && link.inputs.back() < values_, "Chain: an input is no earlier value");
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

  void run(const Context& context) override {
    require(context.input_count() == static_cast<size_t>(given_), "Chain: the number of inputs does not fit");
    require(context.output_count() == results_, "Chain: the number of outputs does not fit");
    std::vector<Value> values(static_cast<size_t>(values_));
    for (int64_t i = 0; i < given_; ++i) values[static_cast<size_t>(i)] = context.input(static_cast<size_t>(i));
    Memories memories;
    for (size_t i = 0; i < links_.size(); ++i) {
      try {
        const Call call(*this, links_[i], context, values.data(), memories);
        links_[i].op->check_inputs(call);
        links_[i].kernel->run(call);
      } catch (const Ort::Exception& error) {
        const std::string place = "node " + std::to_string(i) + " of the chain: ";
        throw Ort::Exception(place + error.what(), error.GetOrtErrorCode());
      }
    }
  }

 private:
  // One call of a node.
  class Call : public Context {
   public:
    Call(const Chain& chain, const Link& link, const Context& whole, Value* values, Memories& memories)
        : Context(whole.threads()), chain_(chain), link_(link), whole_(whole), values_(values), memories_(memories) {}

    size_t input_count() const override { return link_.inputs.size(); }
    size_t output_count() const override { return link_.outputs; }
    Value input(size_t index) const override {
      return index < link_.inputs.size() && link_.inputs[index] != NONE ? values_[link_.inputs[index]] : Value{};
    }
    void* make_output(size_t index, const Shape& shape) const override {
      require(index < link_.outputs, "there is no such output");
      const int64_t number = link_.first + static_cast<int64_t>(index);
      const Element type = chain_.types_[chain_.made(number)];
      const Place place = chain_.places_[chain_.made(number)];
      void* data = place.is_result
                       ? whole_.make_output(place.index, shape)
                       : memories_.at_least(place.index, times(product(shape, 0, shape.size()), size_of(type)));
      values_[number] = {type, shape, data};
      return data;
    }

   private:
    const Chain& chain_;
    const Link& link_;
    const Context& whole_;
    Value* values_;
    Memories& memories_;
  };

  // The place of a value among those that nodes make.
  size_t made(int64_t number) const { return static_cast<size_t>(number - given_); }

  static const Operator* find(const std::string& kind) {
    for (const Operator* op : operators()) {
      if (op->name() == kind && kind != "Chain") return op;
    }
    fail("Chain: there is no operator " + kind);
  }

  // Finds where values are stored. Those that live at the same time have memories of their own.
  void place_values(const std::vector<int64_t>& results) {
    results_ = results.size();
    places_.assign(types_.size(), {false, 0});
    std::vector<size_t> last(types_.size(), 0);  // the last node that reads a value
    for (size_t i = 0; i < links_.size(); ++i) {
      for (size_t j = 0; j < links_[i].outputs; ++j) last[made(links_[i].first) + j] = i;
      for (const int64_t number : links_[i].inputs) {
        if (number >= given_) last[made(number)] = i;
      }
    }
    for (size_t i = 0; i < results_; ++i) {
      require(results[i] >= given_ && results[i] < values_, "Chain: a result is no value of a node");
      Place& place = places_[made(results[i])];
      require(!place.is_result, "Chain: two results are the same value");
      require(types_[made(results[i])] == FLOAT, "Chain: a result is not float32");
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
  }

  int64_t given_, values_ = 0;  // the inputs of the chain, and all values: they come first
  size_t results_ = 0;
  std::vector<Link> links_;
  std::vector<Element> types_;  // of the values that nodes make,
  std::vector<Place> places_;   // and where they are
};

}  // namespace

void add_chain(Operators& all) {
  static const Operator chain("Chain", make_kernel<Chain>, {ANY}, {FLOAT}, SIZE_MAX, true, true);
  all.push_back(&chain);
}

}  // namespace xformc
