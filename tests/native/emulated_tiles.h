// The instructions of tiles.h in memory, as Intel's manual defines them, for machines without AMX.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace xformc {
namespace {

struct EmulatedTile {
  int rows;
  alignas(64) uint8_t bytes[16][64];
};

thread_local EmulatedTile tiles[8];

inline bool permit_tiles() { return true; }

inline void configure_tiles(int top, int bottom) {
  const int rows[8] = {top, top, bottom, bottom, top, bottom, 16, 16};
  for (int i = 0; i < 8; ++i) tiles[i] = EmulatedTile{rows[i], {}};
}

// What is computed after it uses registers without rows.
inline void release_tiles() {
  for (EmulatedTile& tile : tiles) tile = EmulatedTile{};
}

template <int to>
inline void clear_tile() {
  std::memset(tiles[to].bytes, 0, sizeof tiles[to].bytes);
}

template <int to>
inline void load_tile(const void* from, size_t stride) {
  for (int r = 0; r < tiles[to].rows; ++r) {
    std::memcpy(tiles[to].bytes[r], static_cast<const char*>(from) + static_cast<size_t>(r) * stride, 64);
  }
}

template <int from>
inline void store_tile(void* to, size_t stride) {
  for (int r = 0; r < tiles[from].rows; ++r) {
    std::memcpy(static_cast<char*>(to) + static_cast<size_t>(r) * stride, tiles[from].bytes[r], 64);
  }
}

template <int sums, int x, int weights>
inline void multiply_bytes() {
  for (int r = 0; r < tiles[sums].rows; ++r) {
    for (int n = 0; n < 16; ++n) {
      uint32_t sum;
      std::memcpy(&sum, &tiles[sums].bytes[r][4 * n], 4);
      for (int k = 0; k < tiles[weights].rows; ++k) {
        for (int i = 0; i < 4; ++i) {
          const int byte = static_cast<int8_t>(tiles[x].bytes[r][4 * k + i]),
                    weight = tiles[weights].bytes[k][4 * n + i];
          sum += static_cast<uint32_t>(byte * weight);
        }
      }
      std::memcpy(&tiles[sums].bytes[r][4 * n], &sum, 4);
    }
  }
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
  for (int r = 0; r < tiles[sums].rows; ++r) {
    for (int n = 0; n < 16; ++n) {
      float halves[2] = {0, 0}, sum;
      std::memcpy(&sum, &tiles[sums].bytes[r][4 * n], 4);
      for (int k = 0; k < tiles[weights].rows; ++k) {
        for (int i = 0; i < 2; ++i) {
          halves[i] += widened(&tiles[x].bytes[r][4 * k + 2 * i]) * widened(&tiles[weights].bytes[k][4 * n + 2 * i]);
        }
      }
      sum += halves[0] + halves[1];
      std::memcpy(&tiles[sums].bytes[r][4 * n], &sum, 4);
    }
  }
}

}  // namespace
}  // namespace xformc
