// Weights stored in panels of 32 outputs (docs/kernels.md): how large they are, and whether a tensor is one.
#pragma once

#include "gemm.h"
#include "kernel.h"

namespace xformc {

// screened: float32 in two parts, of which int16 are the first.
enum class Precision { float32, float16, bfloat16, int8, int4, int16, screened };

// The precision of that name; throws if there is none. int16 has no name: it is used only to screen products.
Precision precision_of(const std::string& name);

// Whether a scale comes with such weights, and so many numbers of it with the panels of `outputs` of them: one for each
// output, or in int4 for each column and each GROUP of its inputs.
bool has_scale(Precision precision);
int64_t scale_count(Precision precision, int64_t outputs, int64_t depth);

// The second axis of weights in panels that take `depth` numbers each.
int64_t steps_of(Precision precision, int64_t depth);

// The bytes of a panel of weights that take `depth` numbers each.
int64_t panel_bytes(Precision precision, int64_t depth);

// The data of a weight; throws unless it is stored with this precision and these sizes.
const char* bind_weight(const Value& weight, Precision precision, int64_t outputs, int64_t depth);

// Rows of float32 numbers in two parts (docs/kernels.md#screened-weights): words in panels, and what these leave over.
struct ScreenedRows {
  const int16_t* panels = nullptr;  // [ceil(rows / 32)][ceil(depth / 2)][32][2]
  const float* scale = nullptr;     // [rows]
  const int16_t* rest = nullptr;    // [rows][depth]
  int64_t rows = 0, depth = 0;

  ScreenedRows() = default;
  // The number of rows is that of the scales. Throws unless all parts fit.
  ScreenedRows(const Value& panels, const Value& scale, const Value& rest, int64_t depth);

  // Writes factor * row.
  void copy(int64_t row, float factor, float* y) const;
  // Writes a panel of float32, [depth][32], and one number more for each of its rows if the depth is odd.
  void copy_panel(int64_t panel, const Routines& routines, float* y) const;
};

}  // namespace xformc
