// The operators as ONNX Runtime calls them.
#include "kernel.h"

namespace xformc {
namespace {

Value read(const OrtValue* value) {
  Value result;
  if (value == nullptr) return result;
  const Ort::TensorTypeAndShapeInfo info(value);
  result.type = info.GetElementType();
  result.shape.resize(info.GetDimensionsCount());
  info.GetDimensions(result.shape.data(), result.shape.size());
  result.data = Ort::data_of(const_cast<OrtValue*>(value));
  return result;
}

// A node of a model. Inputs that are constants are read once.
struct Node {
  Node(const OrtApi& table, std::unique_ptr<Kernel> made) : api(table), kernel(std::move(made)) {}

  const OrtApi& api;
  std::unique_ptr<Kernel> kernel;
  std::vector<Value> constants;      // by input; those that are none have no type
  std::atomic<bool> checked{false};  // whether its outputs have their types, which are those of the model in all calls
};

// One call of a node. ONNX Runtime allocates memory whenever it is asked for a shape, so each input is read once.
class Call : public Context {
 public:
  Call(const Node& node, const Ort::KernelContext& context)
      : Context(context), node_(node), constants_(node.constants), values_(context.GetInputCount()) {}

  size_t input_count() const override { return values_.size(); }
  size_t output_count() const override { return threads().GetOutputCount(); }
  const Value& input(size_t index) const override {
    if (index >= values_.size()) return no_value();
    if (index < constants_.size() && constants_[index]) return constants_[index];
    if (!values_[index]) values_[index] = read(threads().GetInput(index));
    return values_[index];
  }
  void* make_output(size_t index, const Shape& shape, Element type) const override {
    OrtValue* value = threads().GetOutput(index, shape.begin(), shape.size());
    require(value != nullptr, "no output may be left out");
    const bool known = type == ANY || node_.checked.load(std::memory_order_relaxed);
    require(known || read(value).type == type, "an output has another type in the model");
    return Ort::data_of(value);
  }

 private:
  const Node& node_;
  const std::vector<Value>& constants_;
  mutable std::vector<Value> values_;  // those that have been read
};

const Operator& self(const OrtCustomOp* op) { return *static_cast<const Operator*>(op); }

}  // namespace

Operator::Operator(const char* name, Make make, std::vector<Element> inputs, std::vector<Element> outputs,
                   size_t optional, bool variadic_inputs, bool variadic_outputs)
    : OrtCustomOp{}, name_(name), make_(make), inputs_(std::move(inputs)), outputs_(std::move(outputs)),
      optional_(optional), variadic_inputs_(variadic_inputs), variadic_outputs_(variadic_outputs) {
  version = ORT_VERSION;
  GetName = [](const OrtCustomOp* op) { return self(op).name_; };
  GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
  GetInputTypeCount = [](const OrtCustomOp* op) { return self(op).inputs_.size(); };
  GetInputType = [](const OrtCustomOp* op, size_t i) { return self(op).inputs_[i]; };
  GetInputCharacteristic = [](const OrtCustomOp* op, size_t i) {
    if (self(op).variadic_inputs_ && i + 1 == self(op).inputs_.size()) return INPUT_OUTPUT_VARIADIC;
    return i >= self(op).optional_ ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED;
  };
  GetInputMemoryType = [](const OrtCustomOp*, size_t) { return OrtMemTypeDefault; };
  GetOutputTypeCount = [](const OrtCustomOp* op) { return self(op).outputs_.size(); };
  GetOutputType = [](const OrtCustomOp* op, size_t i) { return self(op).outputs_[i]; };
  GetOutputCharacteristic = [](const OrtCustomOp* op, size_t i) {
    const bool variadic = self(op).variadic_outputs_ && i + 1 == self(op).outputs_.size();
    return variadic ? INPUT_OUTPUT_VARIADIC : INPUT_OUTPUT_REQUIRED;
  };
  GetVariadicInputMinArity = [](const OrtCustomOp*) { return 1; };
  GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 0; };
  GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 1; };
  GetVariadicOutputHomogeneity = [](const OrtCustomOp* op) {
    return static_cast<int>(self(op).outputs_.back() != ANY);
  };
  GetStartVersion = [](const OrtCustomOp*) { return 1; };
  GetEndVersion = [](const OrtCustomOp*) { return INT_MAX; };
  CreateKernelV2 = [](const OrtCustomOp* op, const OrtApi* api, const OrtKernelInfo* info, void** kernel) {
    return Ort::StatusOf(*api, [&] {
      auto node = std::make_unique<Node>(*api, self(op).make(Attributes(info)));
      const Ort::ConstKernelInfo given(info);
      node->constants.resize(given.GetInputCount());
      for (size_t i = 0; i < node->constants.size(); ++i) node->constants[i] = read(given.GetConstantInput(i));
      *kernel = node.release();
    });
  };
  KernelComputeV2 = [](void* kernel, OrtKernelContext* raw) {
    Node& node = *static_cast<Node*>(kernel);
    return Ort::StatusOf(node.api, [&] {
      const Ort::KernelContext context(raw);
      node.kernel->run(Call(node, context));
      node.checked.store(true, std::memory_order_relaxed);
    });
  };
  KernelDestroy = [](void* kernel) { delete static_cast<Node*>(kernel); };
}

void Operator::check_inputs(const Context& context) const {
  const size_t given = context.input_count(), known = inputs_.size();
  if (given > known && !variadic_inputs_) fail(std::string(name_) + ": there are too many inputs");
  for (size_t i = 0; i < std::max(given, std::min(optional_, known)); ++i) {
    const Value& value = context.input(i);
    const bool many = variadic_inputs_ && i + 1 >= known;
    const Element wanted = inputs_[std::min(i, known - 1)];
    const bool fits = value ? wanted == ANY || value.type == wanted : many || i >= optional_;
    if (!fits) fail(std::string(name_) + ": input " + std::to_string(i) + " is missing or of another type");
  }
}

Element Operator::output_type(size_t index, size_t count) const {
  const bool fits = variadic_outputs_ ? count >= outputs_.size() : count == outputs_.size();
  if (!fits) fail(std::string(name_) + ": the number of outputs does not fit");
  return outputs_[std::min(index, outputs_.size() - 1)];
}

const Operators& operators() {
  static const Operators all = [] {
    Operators found;
    for (const auto add : {add_project, add_embed, add_attention, add_cache, add_candidates, add_project_candidates,
                           add_screen_candidates, add_shortlist, add_draw_token, add_advance, add_normalize, add_rotate,
                           add_elementwise, add_parts, add_sequence}) {
      add(found);
    }
    return found;
  }();
  return all;
}

}  // namespace xformc
