// The routines of gemm.h for machines with AMX, whose products of bytes and of pairs in bfloat16 are tiles of 16 rows and 16
// columns; the rest is that of AVX-512.
#if defined(XFORMC_AMX)
#include "gemm_avx512.h"
#include "tiles.h"

namespace xformc {
namespace {

constexpr int SIDE = 16;         // rows and columns of a product of registers, and its steps of four bytes
constexpr int ROWS = 2 * SIDE;   // of a tile of gemm.h, whose sums fill half of the registers
constexpr int CHUNK = SIDE * 4;  // bytes of a row that are multiplied at once
constexpr int LINE = PANEL * 4;  // bytes of a step of a panel
constexpr int LEAST_ROWS = 5;    // of bytes: fewer wait for their weights, which AVX-512 reads a tenth faster

// Registers: the sums of the first and the last 16 rows for each half of the panel; rows, and weights.
enum { TOP_LEFT, TOP_RIGHT, BOTTOM_LEFT, BOTTOM_RIGHT, TOP, BOTTOM, LEFT, RIGHT };

// A row's chunks lie apart: packed int8 [chunks][rows][64], with zeros after the depth.
void pack_bytes_of_rows(const float* x, int rows, int64_t depth, int8_t* packed, float* row_scale,
                        int32_t* row_offset) {
  if (rows < LEAST_ROWS) return AVX512.pack_int8(x, rows, depth, packed, row_scale, row_offset);
  for (int r = 0; r < rows; ++r) {
    const float* row = x + r * depth;
    by_scale(row, depth, row_scale[r], [&](const auto& quotient) {
      Int sum = Vector::all(int32_t{0});
      for (int64_t begin = 0; begin < depth; begin += CHUNK) {
        int8_t* chunk = packed + (begin / CHUNK * rows + r) * CHUNK;
        sum = Vector::add_int(sum, pack_range<4>(row, depth, begin, begin + CHUNK, quotient, chunk - begin, 1));
      }
      row_offset[r] = offset_of(sum);
    });
  }
}

// The same in bfloat16: uint16 [chunks][rows][32].
void pack_pairs_of_rows(const float* x, int rows, int64_t depth, void* packed) {
  for (int r = 0; r < rows; ++r) {
    for (int64_t begin = 0; begin < depth; begin += 2 * SIDE) {
      char* chunk = static_cast<char*>(packed) + (begin / (2 * SIDE) * rows + r) * CHUNK;
      for (int half = 0; half < 2; ++half) {
        const int64_t k = begin + half * SIDE;
        const Float some = k < depth ? Vector::load_some(x + r * depth + k, lanes(depth, k)) : Vector::zero();
        Vector::store_pairs(chunk + half * CHUNK / 2, some);
      }
    }
  }
}

// The registers during a call of a routine. They are given back at its end: other code on this thread expects them
// unused, or configures them for itself.
class Registers {
 public:
  // For tiles of up to so many rows.
  explicit Registers(int most) : bottom_(most > SIDE ? most - SIDE : 0) {}
  Registers(const Registers&) = delete;
  Registers& operator=(const Registers&) = delete;
  ~Registers() { release_tiles(); }

  // Configures them for a tile, if those of the last one do not fit. It takes as long as many products, so tiles come in
  // calls of many, whose rows are as many or one fewer.
  void fit(int rows) {
    const int top = rows < SIDE ? rows : SIDE;
    if (top == top_) return;
    top_ = top;
    configure_tiles(top, bottom_);
  }

  // The rows of BOTTOM: the last ones of a tile with more than 16, of which some may be among the first 16, too. Their
  // sums are the same twice.
  int bottom() const { return bottom_; }

 private:
  int top_ = 0, bottom_;
};

// The sums of a chunk more: of the first rows, and, if there are `both`, of the last ones, from row `bottom` on.
template <typename Product, bool both>
INLINE void add_chunk(const char* x, int bottom, const char* weights) {
  load_tile<LEFT>(weights, LINE);
  load_tile<RIGHT>(weights + CHUNK, LINE);
  load_tile<TOP>(x, CHUNK);
  Product::template add<TOP_LEFT, TOP, LEFT>();
  Product::template add<TOP_RIGHT, TOP, RIGHT>();
  if (both) {
    load_tile<BOTTOM>(x + bottom * CHUNK, CHUNK);
    Product::template add<BOTTOM_LEFT, BOTTOM, LEFT>();
    Product::template add<BOTTOM_RIGHT, BOTTOM, RIGHT>();
  }
}

// Sums a tile of gemm.h in the registers.
template <typename Product, bool both>
void add_chunks(const Tile& tile, int bottom) {
  clear_tile<TOP_LEFT>();
  clear_tile<TOP_RIGHT>();
  if (both) {
    clear_tile<BOTTOM_LEFT>();
    clear_tile<BOTTOM_RIGHT>();
  }
  const auto* x = static_cast<const char*>(tile.x);
  const auto* weights = static_cast<const char*>(tile.panel);
  const char* ahead = tile.ahead;
  int64_t step = 0;
  for (; step + SIDE <= tile.steps; step += SIDE) {
    for (int i = 0; i < SIDE; ++i) fetch<ROWS>(ahead + i * tile.ahead_step);
    ahead += SIDE * tile.ahead_step;
    add_chunk<Product, both>(x, bottom, weights);
    x += tile.rows * CHUNK;
    weights += SIDE * LINE;
  }
  if (step < tile.steps) {
    alignas(64) char rest[SIDE * LINE] = {};
    std::memcpy(rest, weights, static_cast<size_t>((tile.steps - step) * LINE));
    add_chunk<Product, both>(x, bottom, rest);
  }
}

// Stores the sums [rows][32] of a tile.
template <typename Sum>
INLINE void store_sums(bool both, int bottom, Sum* sums) {
  store_tile<TOP_LEFT>(sums, LINE);
  store_tile<TOP_RIGHT>(sums + SIDE, LINE);
  if (both) {
    store_tile<BOTTOM_LEFT>(sums + bottom * PANEL, LINE);
    store_tile<BOTTOM_RIGHT>(sums + bottom * PANEL + SIDE, LINE);
  }
}

// Multiplies tiles. Sums that were just stored can only be read when all of them have been, so those of a tile are
// finished after the products of the next one, and before its sums are stored at the same place.
template <typename Product>
void multiply(const Tile* tiles, int count) {
  alignas(64) typename Product::Sum sums[ROWS * PANEL];
  int most = 0;
  for (int i = 0; i < count; ++i) most = tiles[i].rows > most ? tiles[i].rows : most;
  Registers registers(most);
  for (int i = 0; i < count; ++i) {
    const int rows = tiles[i].rows, bottom = rows - registers.bottom();
    const bool both = rows > SIDE;
    registers.fit(rows);
    if (both) {
      add_chunks<Product, true>(tiles[i], bottom);
    } else {
      add_chunks<Product, false>(tiles[i], bottom);
    }
    if (i > 0) Product::finish(tiles[i - 1], sums);
    store_sums(both, bottom, sums);
  }
  if (count > 0) Product::finish(tiles[count - 1], sums);
}

// What a sum is, how a register of sums has that of two others added, and how the sums of a tile become its y.
struct OfBytes {
  using Sum = int32_t;

  template <int sums, int x, int weights>
  static INLINE void add() {
    multiply_bytes<sums, x, weights>();
  }

  static SEPARATE void finish(const Tile& tile, const int32_t* sums) {
    const int rows = tile.rows;
    const float* row_scale = tile.row_scale;
    const int32_t* row_offset = tile.row_offset;
    xformc::finish(tile, 0, [&](const auto& end) __attribute__((always_inline)) {
      const Float scale[2] = {end.some(tile.scale, 0), end.some(tile.scale, 1)};
      for (int r = 0; r < rows; ++r) {
        const Float scale_of_row = Vector::all(row_scale[r]);
        const Int offset = Vector::all(row_offset[r]);
        for (int h = 0; h < 2; ++h) {
          const Int sum = Vector::add_int(_mm512_load_si512(sums + r * PANEL + h * SIDE), offset);
          end.row(r, h, Vector::mul(Vector::to_float(sum), Vector::mul(scale_of_row, scale[h])));
        }
      }
    });
  }
};

struct OfPairs {
  using Sum = float;

  template <int sums, int x, int weights>
  static INLINE void add() {
    multiply_pairs<sums, x, weights>();
  }

  static SEPARATE void finish(const Tile& tile, const float* sums) {
    const int rows = tile.rows;
    xformc::finish(tile, 0, [&](const auto& end) __attribute__((always_inline)) {
      for (int r = 0; r < rows; ++r) {
        for (int h = 0; h < 2; ++h) end.row(r, h, Vector::load(sums + r * PANEL + h * SIDE));
      }
    });
  }
};

void multiply_rows_of_bytes(const Tile* tiles, int count) {
  for (int begin = 0, end = 0; begin < count; begin = end) {
    const bool few = tiles[begin].rows < LEAST_ROWS;
    for (end = begin + 1; end < count && (tiles[end].rows < LEAST_ROWS) == few; ++end) {
    }
    (few ? AVX512.int8_tiles : multiply<OfBytes>)(tiles + begin, end - begin);
  }
}

}  // namespace

const DenseRoutines AMX = {
    ROWS, MOST_TILES, SIDE, 4, pack_bytes_of_rows, pack_pairs_of_rows, multiply_rows_of_bytes, multiply<OfPairs>};

bool may_use_tiles() {
  static const bool may = permit_tiles();
  return may;
}

}  // namespace xformc
#endif
