// Matrix products of rows with weights in panels, by the routines of gemm.h: packs rows and multiplies blocks of them.
#pragma once

#include "gemm.h"
#include "kernel.h"
#include "panel.h"

namespace xformc {

// A weight in panels, with its scale and bias.
struct Weight {
  int64_t outputs = 0;
  const char* panels = nullptr;
  const float* scale = nullptr;  // integers only: see scale_count
  const float* bias = nullptr;   // [outputs] or null
  ScreenedRows screened;         // of that precision
};

// Where a product goes: activate(x W^T + b) + residual.
struct Result {
  float* y;
  int64_t stride;         // from a row of y, and of the residual, to the next
  const float* residual;  // or null
  Activation activation;
};

// Rows packed for tiles, in blocks of nearly as many rows each.
class PackedRows {
 public:
  // The panels or blocks first .. last - 1.
  struct Range {
    int64_t first, last;
  };

  // Packs x [rows, depth] into memory of the calling thread, which holds one of these at a time; with a context all
  // threads pack.
  PackedRows(const Routines& routines, Precision precision, const float* x, int64_t rows, int64_t depth);
  PackedRows(const Context& context, const Routines& routines, Precision precision, const float* x, int64_t rows,
             int64_t depth);

  int64_t blocks() const { return blocks_; }
  int64_t bytes() const { return rows_ * row_bytes_; }
  int64_t panel_bytes() const { return panel_bytes_; }
  int64_t first(int64_t block) const { return rows_ * block / blocks_; }
  float scale(int64_t row) const { return scales_[row]; }  // of integers

  // Some blocks times some panels; `result` says where the first row of the blocks and the first output of the panels go.
  // The weight's panel after these is fetched meanwhile, if that is what will be read next (`more`).
  void multiply(const Weight& weight, Range panels, Range blocks, bool more, const Result& result) const;

 private:
  PackedRows(const Routines& routines, Precision precision, int64_t rows, int64_t depth);
  void pack(const float* x, int64_t block) const;
  bool narrow() const { return precision_ == Precision::float16 || precision_ == Precision::int4; }
  TileRoutine tile_routine(bool wide) const;
  const void* widened(const Weight& weight, int64_t panel) const;
  int tiles_at_once(Activation activation) const;
  void multiply_tiles(const Tile* tiles, int count, TileRoutine routine, Activation activation) const;

  const Routines& routines_;
  Precision precision_;
  int64_t rows_, depth_, blocks_;
  int64_t steps_, row_bytes_;  // of a packed row
  int64_t groups_;             // of each row, with a scale of its own: 1 but for int4
  int64_t panel_bytes_;
  char* values_;
  float* scales_;
  int32_t* offsets_;
};

}  // namespace xformc
