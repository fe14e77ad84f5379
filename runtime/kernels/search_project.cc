// ProjectCandidates (docs/kernels.md): Candidates of a projection, whose logits never leave the cache.
#include <thread>

#include "product.h"
#include "search_scan.h"

namespace xformc {
namespace {

constexpr int64_t CACHED_BYTES = 512 * 1024;     // of logits, to leave room in the second-level cache for rows and a panel
constexpr int64_t STRIDE = SCAN_BLOCK + PANEL;   // a power of two would put all rows at the same place of the cache
constexpr int64_t ITEMS_PER_THREAD = 8;

static_assert(SCAN_BLOCK % PANEL == 0, "a block of logits is made of whole panels");

struct ProjectCandidates {
  explicit ProjectCandidates(const OrtKernelInfo* raw) {
    const Ort::ConstKernelInfo info(raw);
    precision = precision_of(info.GetAttribute<std::string>("precision"));
    vocabulary = info.GetAttribute<int64_t>("vocabulary");
  }

  void Compute(OrtKernelContext* raw) {
    Ort::KernelContext context(raw);
    const Continuations continuations(context, vocabulary);
    const int64_t batch = continuations.batch, rows = continuations.rows();
    const Ort::ConstValue input = context.GetInput(0);
    const Shape shape = shape_of(input);
    require(shape.size() >= 3 && shape[0] == batch && shape[1] == continuations.beam, "x and scores do not fit");
    const int64_t depth = product(shape, 2, shape.size());
    const Weight weight = bind(context, depth);
    if (rows == 0) return;

    const PackedRows packed(context, routines(), precision, input.GetTensorData<float>(), rows, depth);
    static const int64_t items = ITEMS_PER_THREAD * std::max(1u, std::thread::hardware_concurrency());
    const int64_t chunks = std::min(packed.blocks(), ceil_div(rows * STRIDE * sizeof(float), CACHED_BYTES));
    const int64_t parts = std::min(Scan::blocks_of(vocabulary), ceil_div(items, chunks));
    Scan scan(vocabulary, rows, parts, continuations.count);
    parallel(context, static_cast<size_t>(chunks * parts), [&](size_t i) {
      const int64_t chunk = static_cast<int64_t>(i) % chunks, part = static_cast<int64_t>(i) / chunks;
      look(packed, weight, packed.blocks() * chunk / chunks, packed.blocks() * (chunk + 1) / chunks, part, scan);
    });
    const auto choose = [&](size_t sentence) { continuations.choose(scan, static_cast<int64_t>(sentence)); };
    if (batch >= ENOUGH_PARTS) {
      parallel(context, static_cast<size_t>(batch), choose);
    } else {
      for (int64_t sentence = 0; sentence < batch; ++sentence) choose(static_cast<size_t>(sentence));
    }
  }

  Weight bind(const Ort::KernelContext& context, int64_t depth) const {
    require(depth >= 1, "x has no depth");
    require(precision != Precision::int8 || depth <= 65536, "int8 takes at most 65,536 numbers a row");
    Weight weight;
    weight.outputs = vocabulary;
    weight.panels = bind_weight(context.GetInput(3), precision, vocabulary, depth);
    weight.scale = optional_input<float>(context, 4, vocabulary, "scale needs one number for each token");
    weight.bias = optional_input<float>(context, 5, vocabulary, "bias needs one number for each token");
    require((precision == Precision::int8) == (weight.scale != nullptr), "a scale comes with int8");
    return weight;
  }

  // Looks at a part of the vocabulary for the rows of the blocks from .. to - 1.
  void look(const PackedRows& packed, const Weight& weight, int64_t from, int64_t to, int64_t part, Scan& scan) const {
    static thread_local Buffer buffer;
    const int64_t first = packed.first(from), last = packed.first(to);
    float* logits = buffer.at_least<float>((last - first) * STRIDE);
    const int64_t end = scan.first_block(part + 1);
    for (int64_t block = scan.first_block(part); block < end; ++block) {
      const int64_t begin = block * SCAN_BLOCK / PANEL, panels = ceil_div(scan.tokens_of(block), PANEL);
      for (int64_t i = 0; i < panels; ++i) {
        const bool more = i + 1 < panels || block + 1 < end;
        packed.multiply(weight, begin + i, from, to, more, {logits + i * PANEL, STRIDE, nullptr, Activation::none});
      }
      for (int64_t row = first; row < last; ++row) scan.look(row, part, block, logits + (row - first) * STRIDE);
    }
  }

  Precision precision;
  int64_t vocabulary;
};

}  // namespace

void add_project_candidates(Ort::CustomOpDomain& domain) {
  static const Operator<ProjectCandidates> project_candidates(
      "ProjectCandidates", {FLOAT, FLOAT, INT64, ANY, FLOAT, FLOAT}, {FLOAT, INT64, INT64}, 4);
  domain.Add(&project_candidates);
}

}  // namespace xformc
