// Matrix products of packed rows with weights in panels of 32 outputs (docs/kernels.md), for each kind of machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace xformc {

constexpr int PANEL = 32;
constexpr int MOST_ROWS = 32;   // of a tile, with any routines
constexpr int MOST_TILES = 32;  // of a call, with any routines
constexpr int GROUP = 32;       // neighbours of a row that share a scale in int4

// Of 16-bit integers: the largest one, and the largest norm of a row or column of them before rounding. Rounding adds at
// most sqrt(depth) / 2, so that for depths up to MOST_DEPTH the product of two norms is less than 2^31.
constexpr float INT16_MOST = 32767, INT16_NORM = 46000;
constexpr int64_t MOST_DEPTH = 65536;

// Four bytes as they lie in memory. Always inline: each user is compiled for another machine.
__attribute__((always_inline)) inline int32_t load_four(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof four);
  return four;
}

enum class Activation { none, relu, gelu, gelu_tanh, silu, tanh, sigmoid };

// A block of rows times one panel: y = relu(row_scale * scale * x W^T + bias) + residual; each part is optional.
// Each output is summed over the depth in a fixed order, so it does not depend on the other rows of the tile.
struct Tile {
  int rows;               // 1..rows or dense_rows of the routines
  const void* x;          // packed: float [steps][rows] or int16 [steps][rows][2]; the forms of int8 and of pairs are
                          // those of pack_int8 and pack_pairs
  const void* panel;      // float or uint16 [steps][32], uint8 [steps][32][4], int16 or bfloat16 [steps][32][2];
                          // int4: uint8 [steps / 8][4][32][4], two steps in the halves of each byte
  int64_t steps;          // depth, or ceil(depth / 4), or ceil(depth / 2); int4: 8 ceil(depth / 32)
  float* y;               // its first element
  int64_t stride;         // from a row of y (and of the residual) to the next
  int columns;            // 1..32: how many of the panel's outputs there are
  const float* bias;      // [columns] or null
  const float* residual;  // its first element, or null
  bool relu;
  const float* scale;         // integers only: [columns]; int4: [steps / 8][32]
  const float* row_scale;     // integers only: [rows]
  const int32_t* row_offset;  // integers only: [rows], what each sum starts from; int4: [steps / 8][rows]
  const char* ahead;          // memory to fetch to the cache meanwhile,
  int64_t ahead_step;         // so many bytes on at each step
};

// Multiplies tiles; the result of each does not depend on the others. They may be finished in any order, but all are at
// the end of the call.
using TileRoutine = void (*)(const Tile* tiles, int count);

// The routines of one kind of machine. The result of a row does not depend on the other rows.
struct Routines {
  const char* instructions;  // what they need, for people
  int width;                 // the floats of a vector
  int rows;                  // the most rows of a tile,
  int dense_rows;            // and of those of int8_tiles and pair_tiles,
  int dense_tiles;           // of which a call takes so many best, at most MOST_TILES,
  int chunk;                 // and whose packed rows have a multiple of so many steps;
  int four_size;             // the bytes of a step in int8, four numbers,
  int pair_size;             // and in bfloat16, two numbers
  TileRoutine float_tiles;
  TileRoutine float16_tiles;
  TileRoutine pair_tiles;  // of bfloat16
  TileRoutine int8_tiles;
  TileRoutine int4_tiles;
  TileRoutine wide_int4_tiles;  // of a panel by widen_int4
  TileRoutine int16_tiles;

  // Packs rows of `depth` floats into the x of a tile. pack_int8 quantizes each row: x is about row_scale * q, and
  // row_offset is -128 * the sum of the row's q, which compensates for weights stored as q + 128. pack_int4 does the
  // same for weights stored as q + 8, with a sum for each GROUP: row_offset [groups][rows]. pack_int16 uses the
  // smallest row_scale with which all |q| are at most INT16_MOST and the norm of a row's unrounded q at most INT16_NORM.
  // pack_pairs rounds to bfloat16.
  void (*pack_float)(const float* x, int rows, int64_t depth, float* packed);
  void (*pack_pairs)(const float* x, int rows, int64_t depth, void* packed);
  void (*pack_int8)(const float* x, int rows, int64_t depth, int8_t* packed, float* row_scale, int32_t* row_offset);
  void (*pack_int4)(const float* x, int rows, int64_t depth, int8_t* packed, float* row_scale, int32_t* row_offset);
  void (*pack_int16)(const float* x, int rows, int64_t depth, int16_t* packed, float* row_scale);

  void (*widen_float16)(const uint16_t* values, int64_t count, float* wide);  // count is a multiple of 32, as below
  void (*widen_bfloat16)(const uint16_t* values, int64_t count, float* wide);
  // A panel uint8 [steps][32][4], of bytes with two steps in their halves. The count is that of these bytes.
  void (*widen_int4)(const uint8_t* nibbles, int64_t count, uint8_t* wide);
  // A panel of screened weights: words int16 [ceil(depth / 2)][32][2] and the rests of so many rows, int16 [rows][depth],
  // to word * scale + rest * unit, [2 ceil(depth / 2)][32].
  void (*widen_screened)(const int16_t* words, const int16_t* rest, int64_t rows, int64_t depth, const float* scale,
                         const float* unit, float* wide);
  void (*activate)(Activation activation, float* values, int64_t count);

  // One row in place: two passes over the row for the layer norm; epsilon stands inside the root.
  void (*layer_norm)(float* row, int64_t count, const float* gain, const float* offset, float epsilon);
  void (*rms_norm)(float* row, int64_t count, const float* gain, float epsilon);

  float (*dot)(const float* a, const float* b, int64_t count);
};

extern const Routines PORTABLE;
#if defined(__x86_64__)
extern const Routines AVX2;
extern const Routines AVX512;
extern const Routines AVXVNNI;  // if XFORMC_AVXVNNI is defined, and so on: older compilers lack it

// What replaces routines of AVX512 for bytes, unless it is null, and for pairs. A file that is compiled for some machines
// must not run code when the library is loaded on another one, so gemm.cc puts them together.
struct DenseRoutines {
  int rows, tiles, chunk, pair_size;
  decltype(Routines::pack_int8) pack_int8;
  decltype(Routines::pack_pairs) pack_pairs;
  TileRoutine int8_tiles, pair_tiles;
};

extern const DenseRoutines AVX512BF16, AMX;
const Routines& avx512bf16();
const Routines& amx();

// Whether the processor has AMX's tiles of bytes, the system keeps them, and this process may use them.
bool may_use_tiles();
#elif defined(__aarch64__)
extern const Routines NEON;
extern const Routines DOTPROD;
#endif

// Returns the fastest routines for this machine; the environment variable XFORMC_KERNELS_ISA selects others: portable,
// on x86 avx2, avxvnni, avx512, avx512bf16 or amx, on ARM neon or dotprod. Throws if the variable has another value or
// this machine lacks the instructions.
const Routines& routines();

}  // namespace xformc
