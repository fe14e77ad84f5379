// The operator Project: y = activate(x W^T + b) + residual for one or several W, and perhaps a normalization.
#include <algorithm>
#include <map>

#include "product.h"

namespace xformc {
namespace {

constexpr size_t FIRST_PART = 4;              // the inputs before: x, residual, gain, offset
constexpr int64_t CACHED_BYTES = 384 * 1024;  // of packed rows, to leave room in the second-level cache for a panel
constexpr int64_t FEW_VALUES = 16 * 1024;     // so few are normalized by the calling thread alone
constexpr int64_t FEW_BYTES = 1024 * 1024;    // of weights, those of each row counted: less is work for one thread
constexpr int64_t SHARE_ROWS = 16;            // the fewest rows that are worth reading all weights,
constexpr int64_t MOST_SHARE_ROWS = 64;       // and the most that stay in a core's cache with what is made of them
constexpr int64_t MANY_WEIGHTS = 1 << 20;     // reading more of them for each share takes twice as many rows
constexpr int64_t ITEMS_PER_THREAD = 6, LEAST_ITEMS = 2;

enum class Norm { none, layer, rms };

template <typename Choice>
Choice choice(const std::map<std::string, Choice>& choices, const std::string& name, const char* attribute) {
  const auto found = choices.find(name);
  if (found == choices.end()) fail("Project: " + std::string(attribute) + " is not '" + name + "'");
  return found->second;
}

// The outputs of a weight.
struct Part {
  Shape axes;
  int64_t outputs;
};

// A weight, and where its outputs go.
struct Bound : Weight {
  float* y = nullptr;
};

struct Project : Kernel {
  using Range = PackedRows::Range;

  explicit Project(const Attributes& info) : routines_(routines()) {
    depth_ = info.integer("depth");
    require(depth_ >= 0, "Project: depth is negative");
    const auto parts = info.integer("parts");
    const auto ranks = info.integers("ranks");
    const auto sizes = info.integers("sizes");
    bias_ = info.integer("bias") != 0;
    precision_ = precision_of(info.text("precision"));
    activation_ = choice<Activation>({{"none", Activation::none},
                                      {"relu", Activation::relu},
                                      {"gelu", Activation::gelu},
                                      {"gelu_tanh", Activation::gelu_tanh},
                                      {"silu", Activation::silu},
                                      {"tanh", Activation::tanh},
                                      {"sigmoid", Activation::sigmoid}},
                                     info.text("activation"), "activation");
    norm_ = choice<Norm>({{"none", Norm::none}, {"layer", Norm::layer}, {"rms", Norm::rms}}, info.text("norm"), "norm");
    if (norm_ != Norm::none) epsilon_ = info.number("epsilon");
    require(parts >= 1 && static_cast<int64_t>(ranks.size()) == parts, "Project: ranks has one number for each part");
    for (const int64_t size : sizes) require(size >= 1, "Project: a part has no outputs");
    size_t next = 0;
    for (const int64_t rank : ranks) {
      require(rank >= 0 && next + rank <= sizes.size(), "Project: ranks and sizes do not fit");
      const Shape axes(sizes.data() + next, sizes.data() + next + rank);
      const int64_t outputs = product(axes, 0, axes.size());
      require(outputs >= 1, "Project: a part has no outputs");
      parts_.push_back({axes, outputs});
      next += rank;
    }
    require(next == sizes.size(), "Project: ranks and sizes do not fit");
    require(parts == 1 || norm_ == Norm::none, "Project: a normalization goes with one part only");
  }

  void run(const Context& context) override {
    Call call(*this, context);
    call.run();
  }

 private:
  // The inputs that each part has: its weight, and perhaps a scale, a rest and a bias.
  size_t inputs_of_part() const {
    return size_t{1} + has_scale(precision_) + (precision_ == Precision::screened) + bias_;
  }

  // One call: the rows and the parts with their memory.
  struct Call {
    Call(const Project& kernel_, const Context& context_)
        : kernel(kernel_), context(context_), parts(kernel_.parts_.size()), scaled(has_scale(kernel_.precision_)) {
      const Value& input = context.input(0);
      Shape shape = input.shape;
      require(static_cast<int64_t>(shape.size()) >= kernel.depth_, "Project: x has fewer axes than depth says");
      const size_t leading = shape.size() - kernel.depth_;
      depth = product(shape, leading, shape.size());
      require(depth >= 1, "Project: x has no depth");
      require(!scaled || depth <= MOST_DEPTH, "Project: integers take at most 65,536 numbers a row");
      shape.resize(leading);
      rows = product(shape, 0, leading);
      x = input.as<float>();
      bind_parts(shape);
      residual = optional_input<float>(context, 1, times(rows, parts[0].outputs),
                                       "Project: the residual is not as large as the output");
      gain = optional_input<float>(context, 2, parts[0].outputs, "Project: gain needs one number for each output");
      offset = optional_input<float>(context, 3, parts[0].outputs, "Project: offset needs one number for each output");
      require(residual == nullptr || parts.size() == 1, "Project: a residual goes with one part only");
      require((kernel.norm_ == Norm::none) == (gain == nullptr), "Project: gain comes with a normalization");
      require((kernel.norm_ == Norm::layer) || offset == nullptr, "Project: offset comes with the layer norm");
      require((kernel.norm_ != Norm::layer) || offset != nullptr, "Project: the layer norm needs an offset");
    }

    void bind_parts(const Shape& leading) {
      size_t next = FIRST_PART;
      require(context.input_count() == FIRST_PART + parts.size() * kernel.inputs_of_part(),
              "Project: the number of inputs does not fit parts, precision and bias");
      require(context.output_count() == parts.size(), "Project: there must be one output for each part");
      for (size_t i = 0; i < parts.size(); ++i) {
        const Part& given = kernel.parts_[i];
        Bound& part = parts[i];
        part.outputs = given.outputs;
        const Value panels_of_part = context.input(next++), scale_of_part = context.input(next);
        part.panels = bind_weight(panels_of_part, kernel.precision_, part.outputs, depth);
        const int64_t scales = scale_count(kernel.precision_, part.outputs, depth);
        if (scaled)
          part.scale =
              optional_input<float>(context, next++, scales, "Project: scale needs one number for each output");
        require(!scaled || part.scale != nullptr, "Project: integers need a scale for each part");
        if (kernel.precision_ == Precision::screened)
          part.screened = ScreenedRows(panels_of_part, scale_of_part, context.input(next++), depth);
        if (kernel.bias_)
          part.bias =
              optional_input<float>(context, next++, part.outputs, "Project: bias needs one number for each output");
        require(!kernel.bias_ || part.bias != nullptr, "Project: a bias is missing");
        Shape shape = leading;
        shape.append(given.axes.begin(), given.axes.end());
        part.y = context.output<float>(i, shape);
      }
    }

    void run() {
      if (rows == 0) return;
      panels = 0;
      for (const Bound& part : parts) panels += ceil_div(part.outputs, PANEL);
      const int64_t bytes = panels * panel_bytes(kernel.precision_, depth);
      const int64_t threads = machine_threads();
      if (bytes * std::max(rows, SHARE_ROWS) < FEW_BYTES) {
        project_rows(0, rows);
      } else if (rows >= threads * SHARE_ROWS * (panels * PANEL * depth > MANY_WEIGHTS ? 2 : 1)) {
        const int64_t cached = CACHED_BYTES / (depth * bytes_of_number());
        const int64_t most = std::clamp(cached, SHARE_ROWS, MOST_SHARE_ROWS);
        const int64_t shares = threads * ceil_div(rows, threads * most);
        parallel(context, shares, [&](size_t i) { project_rows(rows * i / shares, rows * (i + 1) / shares); });
      } else {
        project_panels(threads);
      }
    }

    // Of packed rows, about.
    int64_t bytes_of_number() const {
      switch (kernel.precision_) {
        case Precision::int8:
        case Precision::int4: return 1;
        case Precision::bfloat16: return kernel.routines_.pair_size / 2;
        default: return sizeof(float);
      }
    }

    // All outputs of the rows first .. last - 1, by the calling thread.
    void project_rows(int64_t first, int64_t last) const {
      if (first == last) return;
      const PackedRows packed(kernel.routines_, kernel.precision_, x + first * depth, last - first, depth);
      multiply(packed, first, {0, packed.blocks()}, {0, panels});
      normalize(first, last);
    }

    // All rows by so many threads, in items of work: chunks of rows that stay in the cache, times groups of panels. Where
    // panels are few for the threads, there are more chunks.
    void project_panels(int64_t threads) const {
      const PackedRows packed(context, kernel.routines_, kernel.precision_, x, rows, depth);
      const int64_t cached = ceil_div(packed.bytes(), CACHED_BYTES), busy = ceil_div(LEAST_ITEMS * threads, panels);
      const int64_t chunks = std::min(packed.blocks(), std::max(cached, busy));
      const int64_t groups = std::min(panels, ceil_div(ITEMS_PER_THREAD * threads, chunks));
      parallel(context, groups * chunks, [&](size_t i) {
        const int64_t chunk = i / groups, group = i % groups;
        multiply(packed, 0, {packed.blocks() * chunk / chunks, packed.blocks() * (chunk + 1) / chunks},
                 {panels * group / groups, panels * (group + 1) / groups});
      });
      const int64_t together = std::max<int64_t>(1, FEW_VALUES / parts[0].outputs);
      parallel(context, kernel.norm_ == Norm::none ? 0 : ceil_div(rows, together),
               [&](size_t i) { normalize(i * together, std::min<int64_t>(rows, (i + 1) * together)); });
    }

    // Some blocks of packed rows, the first of which is row `row`, times some panels, which are counted through all parts.
    void multiply(const PackedRows& packed, int64_t row, Range blocks, Range wanted) const {
      int64_t begin = 0;  // the first panel of a part
      for (const Bound& part : parts) {
        const int64_t end = begin + ceil_div(part.outputs, PANEL);
        const Range own{std::max(begin, wanted.first) - begin, std::min(end, wanted.last) - begin};
        if (own.first < own.last) {
          const int64_t at = (row + packed.first(blocks.first)) * part.outputs + own.first * PANEL;
          const float* added = residual == nullptr ? nullptr : residual + at;
          const Result result{part.y + at, part.outputs, added, kernel.activation_};
          packed.multiply(part, own, blocks, begin + own.last < end, result);
        }
        begin = end;
      }
    }

    void normalize(int64_t first, int64_t last) const {
      for (int64_t r = first; r < last && kernel.norm_ != Norm::none; ++r) normalize_row(r);
    }

    void normalize_row(int64_t r) const {
      const int64_t outputs = parts[0].outputs;
      float* row = parts[0].y + r * outputs;
      if (kernel.norm_ == Norm::layer) {
        kernel.routines_.layer_norm(row, outputs, gain, offset, kernel.epsilon_);
      } else {
        kernel.routines_.rms_norm(row, outputs, gain, kernel.epsilon_);
      }
    }

    const Project& kernel;
    const Context& context;
    std::vector<Bound> parts;
    const bool scaled;
    const float *x, *residual, *gain, *offset;
    int64_t rows, depth;  // depth: K
    int64_t panels;       // of all parts
  };

  const Routines& routines_;
  int64_t depth_;
  bool bias_;
  Precision precision_;
  Activation activation_;
  Norm norm_;
  float epsilon_ = 0;
  std::vector<Part> parts_;
};

}  // namespace

void add_project(Operators& all) {
  static const Operator project("Project", make_kernel<Project>, {FLOAT, FLOAT, FLOAT, FLOAT, ANY}, {FLOAT}, 1, true,
                                true);
  all.push_back(&project);
}

}  // namespace xformc
