// The instructions of AMX on its eight registers of 16 rows of 64 bytes. XFORMC_EMULATED_TILES names a header that does
// the same in memory, for tests on machines without them.
#pragma once

#if defined(XFORMC_EMULATED_TILES)
#include XFORMC_EMULATED_TILES
#else
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace xformc {
namespace {

// Asks Linux, which gives a thread the 8 KB for its tiles only then, and fails if it does not know or keep them.
inline bool permit_tiles() {
  constexpr unsigned WANTED = 1u << 22 | 1u << 24 | 1u << 25;  // AMX-BF16, -TILE and -INT8 in edx of cpuid's leaf 7
  constexpr int REQUEST = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, and the number of that part of the state
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool has = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & WANTED) == WANTED;
  return has && syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

// Memory as LDTILECFG reads it.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};  // of a row of each register
  uint8_t rows[16] = {};
};

// The sums and rows 0, 1 and 4 of a tile have `top` rows, 2, 3 and 5 `bottom`; weights have 16.
inline void configure_tiles(int top, int bottom) {
  TileShapes shapes;
  const int rows[8] = {top, top, bottom, bottom, top, bottom, 16, 16};
  for (int i = 0; i < 8; ++i) {
    shapes.rows[i] = static_cast<uint8_t>(rows[i]);
    shapes.bytes[i] = rows[i] == 0 ? 0 : 64;
  }
  asm volatile("ldtilecfg %0" : : "m"(shapes) : "memory");
}

inline void release_tiles() { asm volatile("tilerelease" : : : "memory"); }

// Whether they are configured on this thread, for tests: STTILECFG gives zeros if not.
inline bool tiles_in_use() {
  TileShapes shapes;
  asm volatile("sttilecfg %0" : "=m"(shapes) : : "memory");
  return shapes.palette != 0;
}

template <int to>
inline void clear_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(to));
}

template <int to>
inline void load_tile(const void* from, size_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(to) : "memory");
}

template <int from>
inline void store_tile(void* to, size_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(from) : "memory");
}

// sums += x weights, of signed bytes and unsigned ones.
template <int sums, int x, int weights>
inline void multiply_bytes() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(x), "i"(weights));
}

// The same of numbers in bfloat16: the first ones of all pairs are added up, and the second ones, then both sums and the
// one before; what is too small for a normal number counts as 0.
template <int sums, int x, int weights>
inline void multiply_pairs() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(x), "i"(weights));
}

}  // namespace
}  // namespace xformc
#endif
