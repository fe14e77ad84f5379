// The operator Project: y = activate(x W^T + b) + residual for one or several W, and perhaps a normalization.
#include <algorithm>
#include <map>
#include <memory>
#include <thread>

#include "gemm.h"
#include "kernel.h"
#include "panel.h"

namespace xformc {
namespace {

constexpr size_t FIRST_PART = 4;                // the inputs before: x, residual, gain, offset
constexpr int64_t CACHED_BYTES = 384 * 1024;    // of packed rows, to leave room in the second-level cache for a panel
constexpr int64_t FEW_VALUES = 16 * 1024;       // so few are packed, or normalized, by the calling thread alone
constexpr int64_t FEW_BYTES = 64 * 1024;        // panels of so few are multiplied by one thread
constexpr int64_t ITEMS_PER_THREAD = 6;

constexpr int64_t NARROW_BLOCKS = 2;            // for more blocks of rows 16-bit weights are widened once

using TileRoutine = void (*)(const Tile& tile, int rows);

enum class Norm { none, layer, rms };

template <typename Value>
Value choice(const std::map<std::string, Value>& choices, const std::string& name, const char* attribute) {
  const auto found = choices.find(name);
  if (found == choices.end()) fail("Project: " + std::string(attribute) + " is not '" + name + "'");
  return found->second;
}

// Memory of the calling thread that grows as needed and begins at a cache line.
class Scratch {
 public:
  void* at_least(size_t bytes) {
    if (bytes > size_) {
      memory_.reset(static_cast<char*>(::operator new(bytes, std::align_val_t(64))));
      size_ = bytes;
    }
    return memory_.get();
  }

 private:
  struct Delete {
    void operator()(char* memory) const { ::operator delete(memory, std::align_val_t(64)); }
  };
  std::unique_ptr<char, Delete> memory_;
  size_t size_ = 0;
};

// A weight, what belongs to it, and where its outputs go.
struct Part {
  Shape axes;
  int64_t outputs = 0;       // N
  const char* weight = nullptr;
  const float* scale = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
};

// Rows packed for tiles: blocks of nearly as many rows each.
struct PackedRows {
  int64_t rows, blocks, block_values;  // block_values: what a full block takes, in packed elements
  char* values;
  float* scales;
  int32_t* offsets;

  int64_t first(int64_t block) const { return rows * block / blocks; }
};

struct Project {
  explicit Project(const OrtKernelInfo* raw) : routines_(routines()) {
    const Ort::ConstKernelInfo info(raw);
    depth_ = info.GetAttribute<int64_t>("depth");
    require(depth_ >= 0, "Project: depth is negative");
    const auto parts = info.GetAttribute<int64_t>("parts");
    const auto ranks = info.GetAttributes<int64_t>("ranks");
    const auto sizes = info.GetAttributes<int64_t>("sizes");
    bias_ = info.GetAttribute<int64_t>("bias") != 0;
    precision_ = precision_of(info.GetAttribute<std::string>("precision"));
    activation_ = choice<Activation>({{"none", Activation::none},
                                      {"relu", Activation::relu},
                                      {"gelu", Activation::gelu},
                                      {"gelu_tanh", Activation::gelu_tanh},
                                      {"silu", Activation::silu},
                                      {"tanh", Activation::tanh},
                                      {"sigmoid", Activation::sigmoid}},
                                     info.GetAttribute<std::string>("activation"), "activation");
    norm_ = choice<Norm>({{"none", Norm::none}, {"layer", Norm::layer}, {"rms", Norm::rms}},
                         info.GetAttribute<std::string>("norm"), "norm");
    if (norm_ != Norm::none) epsilon_ = info.GetAttribute<float>("epsilon");
    require(parts >= 1 && static_cast<int64_t>(ranks.size()) == parts, "Project: ranks has one number for each part");
    for (const int64_t size : sizes) require(size >= 1, "Project: a part has no outputs");
    size_t next = 0;
    for (const int64_t rank : ranks) {
      require(rank >= 0 && next + rank <= sizes.size(), "Project: ranks and sizes do not fit");
      Part part;
      part.axes.assign(sizes.begin() + next, sizes.begin() + next + rank);
      part.outputs = product(part.axes, 0, part.axes.size());
      require(part.outputs >= 1, "Project: a part has no outputs");
      parts_.push_back(part);
      next += rank;
    }
    require(next == sizes.size(), "Project: ranks and sizes do not fit");
    require(parts == 1 || norm_ == Norm::none, "Project: a normalization goes with one part only");
  }

  void Compute(OrtKernelContext* raw) {
    Ort::KernelContext context(raw);
    Call call(*this, context);
    call.run();
  }

 private:
  // One call: the rows and the parts with their memory.
  struct Call {
    Call(const Project& kernel_, Ort::KernelContext& context_)
        : kernel(kernel_), context(context_), parts(kernel_.parts_), int8(kernel_.precision_ == Precision::int8) {
      const Ort::ConstValue input = context.GetInput(0);
      Shape shape = shape_of(input);
      require(static_cast<int64_t>(shape.size()) >= kernel.depth_, "Project: x has fewer axes than depth says");
      const size_t leading = shape.size() - kernel.depth_;
      depth = product(shape, leading, shape.size());
      require(depth >= 1, "Project: x has no depth");
      require(!int8 || depth <= 65536, "Project: int8 takes at most 65,536 numbers a row");
      shape.resize(leading);
      rows = product(shape, 0, leading);
      x = input.GetTensorData<float>();
      bind_parts(shape);
      residual = floats(1, rows * parts[0].outputs, "Project: the residual is not as large as the output");
      gain = floats(2, parts[0].outputs, "Project: gain needs one number for each output");
      offset = floats(3, parts[0].outputs, "Project: offset needs one number for each output");
      require(residual == nullptr || parts.size() == 1, "Project: a residual goes with one part only");
      require((kernel.norm_ == Norm::none) == (gain == nullptr), "Project: gain comes with a normalization");
      require((kernel.norm_ == Norm::layer) || offset == nullptr, "Project: offset comes with the layer norm");
      require((kernel.norm_ != Norm::layer) || offset != nullptr, "Project: the layer norm needs an offset");
    }

    void bind_parts(const Shape& leading) {
      size_t next = FIRST_PART;
      require(context.GetInputCount() == FIRST_PART + parts.size() * (1 + int8 + kernel.bias_),
              "Project: the number of inputs does not fit parts, precision and bias");
      require(context.GetOutputCount() == parts.size(), "Project: there must be one output for each part");
      for (size_t i = 0; i < parts.size(); ++i) {
        Part& part = parts[i];
        part.weight = bind_weight(context.GetInput(next++), kernel.precision_, part.outputs, depth);
        if (int8) part.scale = floats(next++, part.outputs, "Project: scale needs one number for each output");
        require(!int8 || part.scale != nullptr, "Project: int8 needs a scale for each part");
        if (kernel.bias_) part.bias = floats(next++, part.outputs, "Project: bias needs one number for each output");
        require(!kernel.bias_ || part.bias != nullptr, "Project: a bias is missing");
        Shape shape = leading;
        shape.insert(shape.end(), part.axes.begin(), part.axes.end());
        auto output = context.GetOutput(i, shape);
        require(static_cast<OrtValue*>(output) != nullptr, "Project: no output may be left out");
        part.y = output.GetTensorMutableData<float>();
      }
    }

    const float* floats(size_t index, int64_t count, const char* message) const {
      return optional_input<float>(context, index, count, message);
    }

    void run() {
      if (rows == 0) return;
      pack();
      schedule();
      parallel(context, groups * chunks, [this](size_t i) { multiply_group(i / groups, i % groups); });
      normalize();
    }

    // The rows as tiles take them, in memory of the calling thread.
    void pack() {
      static thread_local Scratch values, scales, offsets;
      steps = int8 ? ceil_div(depth, 4) : depth;
      step_bytes = int8 ? 4 : sizeof(float);
      packed.rows = rows;
      packed.blocks = ceil_div(rows, kernel.routines_.rows);
      packed.values = static_cast<char*>(values.at_least(rows * steps * step_bytes));
      packed.scales = static_cast<float*>(scales.at_least(rows * sizeof(float)));
      packed.offsets = static_cast<int32_t*>(offsets.at_least(rows * sizeof(int32_t)));
      if (rows * depth <= FEW_VALUES) {
        for (int64_t block = 0; block < packed.blocks; ++block) pack_block(block);
      } else {
        parallel(context, packed.blocks, [this](size_t block) { pack_block(block); });
      }
    }

    void pack_block(int64_t block) const {
      const int64_t first = packed.first(block);
      const int count = static_cast<int>(packed.first(block + 1) - first);
      char* to = packed.values + first * steps * step_bytes;
      if (int8) {
        kernel.routines_.pack_int8(x + first * depth, count, depth, reinterpret_cast<int8_t*>(to),
                                   packed.scales + first, packed.offsets + first);
      } else {
        kernel.routines_.pack_float(x + first * depth, count, depth, reinterpret_cast<float*>(to));
      }
    }

    // Items of work: chunks of rows that stay in the cache, times groups of panels.
    void schedule() {
      panel_bytes = xformc::panel_bytes(kernel.precision_, depth);
      panels = 0;
      for (const Part& part : parts) panels += ceil_div(part.outputs, PANEL);
      chunks = std::min(packed.blocks, ceil_div(rows * steps * step_bytes, CACHED_BYTES));
      static const int64_t items = ITEMS_PER_THREAD * std::max(1u, std::thread::hardware_concurrency());
      groups = panels * panel_bytes < FEW_BYTES ? 1 : std::min(panels, ceil_div(items, chunks));
    }

    int64_t first_block(int64_t chunk) const { return packed.blocks * chunk / chunks; }

    void multiply_group(int64_t chunk, int64_t group) const {
      const int64_t last = panels * (group + 1) / groups;
      int64_t begin = 0;  // the first panel of a part
      for (const Part& part : parts) {
        const int64_t end = begin + ceil_div(part.outputs, PANEL);
        for (int64_t p = std::max(begin, panels * group / groups); p < std::min(end, last); ++p) {
          multiply(part, p - begin, chunk, p + 1 < end);
        }
        begin = end;
      }
    }

    // A chunk of rows times a panel; its last block fetches the panel after it, if there is `more`.
    void multiply(const Part& part, int64_t panel, int64_t chunk, bool more) const {
      const char* stored = part.weight + panel * panel_bytes;
      const int64_t from = first_block(chunk), to = first_block(chunk + 1);
      Tile tile{};
      const bool wide = to - from > NARROW_BLOCKS && narrow();
      tile.panel = wide ? widened(stored) : stored;
      tile.steps = steps;
      tile.columns = static_cast<int>(std::min<int64_t>(PANEL, part.outputs - panel * PANEL));
      if (part.bias != nullptr) tile.bias = part.bias + panel * PANEL;
      if (int8) tile.scale = part.scale + panel * PANEL;
      for (int64_t block = from; block < to; ++block) {
        const bool fetch = more && block + 1 == to;
        tile.ahead = fetch ? stored + panel_bytes : stored;
        tile.ahead_step = fetch ? panel_bytes / steps : 0;
        multiply_block(part, panel, block, tile, wide ? kernel.routines_.float_tile : tile_routine());
      }
    }

    bool narrow() const { return kernel.precision_ == Precision::float16 || kernel.precision_ == Precision::bfloat16; }

    TileRoutine tile_routine() const {
      switch (kernel.precision_) {
        case Precision::float32: return kernel.routines_.float_tile;
        case Precision::float16: return kernel.routines_.float16_tile;
        case Precision::bfloat16: return kernel.routines_.bfloat16_tile;
        default: return kernel.routines_.int8_tile;
      }
    }

    // 16-bit weights of a panel as float32, in memory of the working thread.
    const void* widened(const char* stored) const {
      static thread_local Scratch wide;
      auto* to = static_cast<float*>(wide.at_least(depth * PANEL * sizeof(float)));
      const auto* from = reinterpret_cast<const uint16_t*>(stored);
      const bool half = kernel.precision_ == Precision::float16;
      (half ? kernel.routines_.widen_float16 : kernel.routines_.widen_bfloat16)(from, depth * PANEL, to);
      return to;
    }

    void multiply_block(const Part& part, int64_t panel, int64_t block, Tile tile, TileRoutine routine) const {
      const int64_t first = packed.first(block);
      const int count = static_cast<int>(packed.first(block + 1) - first);
      const int64_t at = first * part.outputs + panel * PANEL;
      tile.x = packed.values + first * steps * step_bytes;
      tile.row_scale = packed.scales + first;
      tile.row_offset = packed.offsets + first;
      tile.y = part.y + at;
      tile.stride = part.outputs;
      tile.residual = residual == nullptr ? nullptr : residual + at;
      tile.relu = kernel.activation_ == Activation::relu;
      if (tile.relu || kernel.activation_ == Activation::none) {
        routine(tile, count);
      } else {
        activate_block(tile, count, routine);
      }
    }

    // As multiply_block for activations that the tile does not know, by way of memory beside.
    void activate_block(Tile tile, int count, TileRoutine routine) const {
      alignas(64) float values[16 * PANEL] = {};
      float* y = tile.y;
      const float* added = tile.residual;
      const int64_t stride = tile.stride;
      tile.y = values;
      tile.stride = PANEL;
      tile.residual = nullptr;
      routine(tile, count);
      kernel.routines_.activate(kernel.activation_, values, count * PANEL);
      for (int r = 0; r < count; ++r) {
        for (int c = 0; c < tile.columns; ++c) {
          y[r * stride + c] = values[r * PANEL + c] + (added == nullptr ? 0.0f : added[r * stride + c]);
        }
      }
    }

    void normalize() {
      if (kernel.norm_ == Norm::none) return;
      const int64_t outputs = parts[0].outputs;
      const int64_t together = rows * outputs <= FEW_VALUES ? rows : ceil_div(FEW_VALUES / 4, outputs);
      parallel(context, ceil_div(rows, together), [this, together](size_t i) {
        const int64_t first = i * together;
        for (int64_t r = first; r < std::min(rows, first + together); ++r) normalize_row(r);
      });
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
    Ort::KernelContext& context;
    std::vector<Part> parts;
    const bool int8;
    const float *x, *residual, *gain, *offset;
    int64_t rows, depth;            // depth: K
    int64_t steps, step_bytes;      // of packed rows: how many elements, and the bytes of each
    PackedRows packed;
    int64_t panels, panel_bytes;    // panels of all parts
    int64_t chunks, groups;
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

void add_project(Ort::CustomOpDomain& domain) {
  static const Operator<Project> project("Project", {FLOAT, FLOAT, FLOAT, FLOAT, ANY}, {FLOAT}, 1, true, true);
  domain.Add(&project);
}

}  // namespace xformc
