// The instructions of tiles.h in memory, as Intel's manual defines them, for machines without AMX.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace xformc {

struct EmulatedTile {
  int rows;
  alignas(64) uint8_t bytes[16][64];
};

// Those of a thread, which must have none in use when it ends.
struct EmulatedTiles {
  ~EmulatedTiles() { check(!in_use, "they are still configured at the end of a thread"); }

  static void check(bool right, const char* what) {
    if (right) return;
    std::fprintf(stderr, "emulated tiles: %s\n", what);
    std::abort();
  }

  EmulatedTile& operator[](int i) {
    check(in_use && tiles[i].rows > 0, "one is used that is not configured");
    return tiles[i];
  }

  bool in_use = false;
  EmulatedTile tiles[8] = {};
};

inline thread_local EmulatedTiles emulated_tiles;

namespace {

inline bool permit_tiles() { return true; }

inline void configure_tiles(int top, int bottom) {
  const int rows[8] = {top, top, bottom, bottom, top, bottom, 16, 16};
  for (int i = 0; i < 8; ++i) {
    EmulatedTiles::check(rows[i] >= 0 && rows[i] <= 16, "one is configured for too many rows");
    emulated_tiles.tiles[i] = EmulatedTile{rows[i], {}};
  }
  emulated_tiles.in_use = true;
}

inline void release_tiles() { emulated_tiles.in_use = false; }
inline bool tiles_in_use() { return emulated_tiles.in_use; }

template <int to>
inline void clear_tile() {
  EmulatedTile& tile = emulated_tiles[to];
  std::memset(tile.bytes, 0, sizeof tile.bytes);
}

template <int to>
inline void load_tile(const void* from, size_t stride) {
  EmulatedTile& tile = emulated_tiles[to];
  for (int r = 0; r < tile.rows; ++r) {
    std::memcpy(tile.bytes[r], static_cast<const char*>(from) + static_cast<size_t>(r) * stride, 64);
  }
}

template <int from>
inline void store_tile(void* to, size_t stride) {
  const EmulatedTile& tile = emulated_tiles[from];
  for (int r = 0; r < tile.rows; ++r) {
    std::memcpy(static_cast<char*>(to) + static_cast<size_t>(r) * stride, tile.bytes[r], 64);
  }
}

// Sets each sum of the first tile, of type Sum, to add(sum, its row of x, all weights, its column's first byte).
template <typename Sum, typename Add>
inline void multiply_tiles(EmulatedTile& sums, const EmulatedTile& x, const EmulatedTile& weights, const Add& add) {
  EmulatedTiles::check(sums.rows == x.rows && weights.rows == 16, "some that do not fit are multiplied");
  for (int r = 0; r < sums.rows; ++r) {
    for (int n = 0; n < 16; ++n) {
      Sum sum;
      std::memcpy(&sum, &sums.bytes[r][4 * n], 4);
      sum = add(sum, x.bytes[r], weights.bytes, 4 * n);
      std::memcpy(&sums.bytes[r][4 * n], &sum, 4);
    }
  }
}

template <int sums, int x, int weights>
inline void multiply_bytes() {
  multiply_tiles<uint32_t>(emulated_tiles[sums], emulated_tiles[x], emulated_tiles[weights],
                           [](uint32_t sum, const uint8_t* row, const uint8_t (*weight)[64], int column) {
                             for (int k = 0; k < 64; ++k) {
                               const int byte = static_cast<int8_t>(row[k]);
                               sum += static_cast<uint32_t>(byte * weight[k / 4][column + k % 4]);
                             }
                             return sum;
                           });
}

inline float widened(const uint8_t* number) {
  const uint32_t bits = static_cast<uint32_t>(number[0]) << 16 | static_cast<uint32_t>(number[1]) << 24;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Numbers too small for a normal one are not flushed to 0.
template <int sums, int x, int weights>
inline void multiply_pairs() {
  multiply_tiles<float>(emulated_tiles[sums], emulated_tiles[x], emulated_tiles[weights],
                        [](float sum, const uint8_t* row, const uint8_t (*weight)[64], int column) {
                          float halves[2] = {0, 0};
                          for (int k = 0; k < 32; ++k) {
                            halves[k % 2] += widened(row + 2 * k) * widened(&weight[k / 2][column + k % 2 * 2]);
                          }
                          return sum + (halves[0] + halves[1]);
                        });
}

}  // namespace
}  // namespace xformc
