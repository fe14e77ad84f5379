// Compares routines with the portable ones: products of integers, rows packed to integers and numbers of 16 bits to the
// bit, products of floats up to their order. On ARM NEON's, which `tests/aarch64/run` builds and runs; on x86 those of
// AVX2, of AVX-VNNI, with the instructions of AVX-512 that do the same, of AVX-512 and of AMX, perhaps emulated.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <sys/mman.h>
#include <unistd.h>

#include "attend.h"
#include "gemm.h"
#if defined(__x86_64__)
#include "tiles.h"
#endif

using namespace xformc;

namespace {

#if defined(__aarch64__)
const StepRoutines& STEP = STEP_NEON;
#else
const StepRoutines& STEP = STEP_AVX2;
#endif

int failures = 0, compared = 0;
std::mt19937 generator(7);

float normal() { return std::normal_distribution<float>()(generator); }

template <typename T>
std::vector<T> random_bits(size_t count) {
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(generator());
  return values;
}

std::vector<float> random_floats(size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = normal();
  return values;
}

void check(bool same, const std::string& what) {
  ++compared;
  if (!same && ++failures <= 20) std::printf("DIFFERENT: %s\n", what.c_str());
}

// Bytes right before a page that no one may read.
class Guarded {
 public:
  explicit Guarded(size_t size, char value = 0) : size_(size) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (size + page - 1) / page * page + page;
    void* memory = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    memory_ = static_cast<char*>(memory);
    if (mprotect(memory_ + mapped_ - page, page, PROT_NONE) != 0) std::abort();
    data_ = memory_ + mapped_ - page - size;
    std::memset(data_, value, size);
  }
  template <typename T>
  explicit Guarded(const std::vector<T>& values) : Guarded(values.size() * sizeof(T)) {
    std::memcpy(data_, values.data(), size_);
  }
  Guarded(Guarded&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), data_(other.data_), mapped_(other.mapped_), size_(other.size_) {
  }
  Guarded& operator=(Guarded&&) = delete;
  ~Guarded() {
    if (memory_ != nullptr) munmap(memory_, mapped_);
  }

  char* data() { return data_; }
  const char* data() const { return data_; }
  bool operator==(const Guarded& other) const {
    return size_ == other.size_ && std::memcmp(data_, other.data_, size_) == 0;
  }

 private:
  char *memory_, *data_;
  size_t mapped_, size_;
};

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

bool near(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::fabs(a[i] - b[i]) <= tolerance * (1 + std::fabs(b[i])))) return false;
  }
  return true;
}

// Weights of int8 are q + 128 with q in -127..127.
std::vector<uint8_t> random_weights(size_t count) {
  auto weights = random_bits<uint8_t>(count);
  for (uint8_t& weight : weights) weight = weight == 0 ? 1 : weight;
  return weights;
}

// Calls a routine, at whose end no tiles of AMX may be in use.
void multiply(TileRoutine routine, const std::vector<Tile>& tiles) {
  routine(tiles.data(), static_cast<int>(tiles.size()));
#if defined(__x86_64__)
  static const bool may_use = may_use_tiles();
  if (may_use && tiles_in_use()) {
    std::fprintf(stderr, "a routine left tiles in use\n");
    std::exit(EXIT_FAILURE);
  }
#endif
}

struct Packed {
  Guarded x;
  std::vector<float> scale;
  std::vector<int32_t> offset;
  bool operator==(const Packed& other) const {
    return x == other.x && same_bits(scale, other.scale) && offset == other.offset;
  }
};

enum class Kind { int8, int4, int16 };

int64_t groups_of(Kind kind, int64_t depth) { return kind == Kind::int4 ? (depth + GROUP - 1) / GROUP : 1; }
int64_t steps_of(Kind kind, int64_t depth) {
  if (kind == Kind::int4) return groups_of(kind, depth) * GROUP / 4;
  return kind == Kind::int8 ? (depth + 3) / 4 : (depth + 1) / 2;
}

Packed pack(const Routines& routines, Kind kind, const float* x, int rows, int64_t depth) {
  const int64_t chunk = kind == Kind::int8 ? routines.chunk : 1,
                four_size = kind == Kind::int8 ? routines.four_size : 4;
  const int64_t row_bytes = (steps_of(kind, depth) + chunk - 1) / chunk * chunk * four_size;
  Packed to{Guarded(rows * row_bytes), std::vector<float>(rows), std::vector<int32_t>(rows * groups_of(kind, depth))};
  auto* bytes = reinterpret_cast<int8_t*>(to.x.data());
  if (kind == Kind::int8) routines.pack_int8(x, rows, depth, bytes, to.scale.data(), to.offset.data());
  if (kind == Kind::int4) routines.pack_int4(x, rows, depth, bytes, to.scale.data(), to.offset.data());
  if (kind == Kind::int16) {
    routines.pack_int16(x, rows, depth, reinterpret_cast<int16_t*>(to.x.data()), to.scale.data());
  }
  return to;
}

struct Weights {
  Guarded panel;
  std::vector<float> scale;
};

// The product of rows with a panel, in blocks of as many rows as the routines take; what is beyond its columns must be
// left alone. In 16 bits the portable routines pack: a scale is a norm, a sum of floats, in an order of their own.
std::vector<float> product(const Routines& routines, Kind kind, const std::vector<float>& x, const Weights& weights,
                           int rows, int64_t depth, int columns) {
  std::vector<float> y(rows * PANEL, 12345.0f);
  Tile tile{};
  tile.panel = weights.panel.data();
  tile.steps = steps_of(kind, depth);
  tile.stride = PANEL;
  tile.columns = columns;
  tile.scale = weights.scale.data();
  tile.ahead = weights.panel.data();
  const int most = kind == Kind::int8 ? routines.dense_rows : routines.rows;
  for (int first = 0; first < rows; first += most) {
    const int count = std::min(most, rows - first);
    const Packed packed = pack(kind == Kind::int16 ? PORTABLE : routines, kind, x.data() + first * depth, count, depth);
    tile.x = packed.x.data();
    tile.y = y.data() + first * PANEL;
    tile.row_scale = packed.scale.data();
    tile.row_offset = packed.offset.data();
    tile.rows = count;
    const auto routine = kind == Kind::int8   ? routines.int8_tiles
                         : kind == Kind::int4 ? routines.int4_tiles
                                              : routines.int16_tiles;
    multiply(routine, {tile});
  }
  return y;
}

void compare_integers(const Routines& routines, const std::string& name, Kind kind, int rows, int64_t depth,
                      int columns) {
  const auto x = random_floats(rows * depth);
  const size_t bytes = steps_of(kind, depth) * PANEL * 4;
  const Weights weights{Guarded(kind == Kind::int8 ? random_weights(bytes) : random_bits<uint8_t>(bytes)),
                        random_floats(PANEL * groups_of(kind, depth))};
  const std::string what = name + " kind " + std::to_string(static_cast<int>(kind)) + ", " + std::to_string(rows) +
                           " rows of " + std::to_string(depth) + ", " + std::to_string(columns) + " columns";
  const bool alike = kind != Kind::int8 || (routines.four_size == PORTABLE.four_size && routines.chunk == 1);
  if (alike && kind != Kind::int16) {
    check(pack(routines, kind, x.data(), rows, depth) == pack(PORTABLE, kind, x.data(), rows, depth),
          what + ": packed rows");
  }
  const auto a = product(PORTABLE, kind, x, weights, rows, depth, columns);
  const auto b = product(routines, kind, x, weights, rows, depth, columns);
  // The sums of int4's groups are added as floats, with one rounding here and two there.
  check(kind == Kind::int4 ? near(b, a, 1e-4f) : same_bits(a, b), what + ": products");
}

// The largest products: all of one sign, where two in 16 bits are nearly too large.
void compare_extremes(const Routines& routines, const std::string& name, uint8_t weight, float sign) {
  constexpr int64_t DEPTH = 4096;
  const int rows = routines.dense_rows;
  const std::vector<float> x(rows * DEPTH, sign);
  const Weights weights{Guarded(DEPTH * PANEL, static_cast<char>(weight)), std::vector<float>(PANEL, 1.0f)};
  const auto a = product(PORTABLE, Kind::int8, x, weights, rows, DEPTH, PANEL);
  const auto b = product(routines, Kind::int8, x, weights, rows, DEPTH, PANEL);
  const float exact = std::round(a[0] * 127), expected = sign * 127.0f * DEPTH * (weight - 128.0f);
  check(same_bits(a, b) && exact == expected, name + ": the largest products");
}

void compare_floats(const Routines& routines, const std::string& name, int rows, int64_t depth, int columns) {
  const auto x = random_floats(rows * depth), weights = random_floats(depth * PANEL), bias = random_floats(PANEL);
  std::vector<uint16_t> narrow(depth * PANEL), brain(depth * PANEL);
  STEP_PORTABLE.narrow(weights.data(), depth * PANEL, narrow.data());
  for (size_t i = 0; i < brain.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, &weights[i], 4);
    brain[i] = static_cast<uint16_t>(bits >> 16);
  }
  const auto tile_of = [&](const Routines& by, int kind) {
    std::vector<float> packed(rows * depth), y(rows * PANEL, 12345.0f);
    by.pack_float(x.data(), rows, depth, packed.data());
    Tile tile{};
    tile.rows = rows;
    tile.x = packed.data();
    tile.panel = kind == 0 ? static_cast<const void*>(weights.data()) : kind == 1 ? narrow.data() : brain.data();
    tile.steps = depth;
    tile.y = y.data();
    tile.stride = PANEL;
    tile.columns = columns;
    tile.bias = bias.data();
    tile.ahead = reinterpret_cast<const char*>(weights.data());
    multiply(kind == 0 ? by.float_tiles : kind == 1 ? by.float16_tiles : by.bfloat16_tiles, {tile});
    return y;
  };
  for (int kind = 0; kind < 3; ++kind) {
    check(near(tile_of(routines, kind), tile_of(PORTABLE, kind), 1e-5f * static_cast<float>(depth)),
          name + ": floats of kind " + std::to_string(kind));
  }
}

int64_t pair_steps(int64_t depth) { return (depth + 1) / 2; }

Guarded random_pairs(int64_t depth) {
  std::vector<uint16_t> panel(pair_steps(depth) * PANEL * 2,
                              0x8000);  // -0 after an odd depth, as the compiler writes it
  for (int64_t k = 0; k < depth; ++k) {
    for (int n = 0; n < PANEL; ++n) {
      const float weight = normal();
      uint32_t bits;
      std::memcpy(&bits, &weight, 4);
      panel[(k / 2 * PANEL + n) * 2 + k % 2] = static_cast<uint16_t>(bits >> 16);
    }
  }
  return Guarded(panel);
}

Guarded pack_pairs(const Routines& routines, const float* x, int rows, int64_t depth) {
  const auto unset = static_cast<char>(0xff);  // what is no number, as memory that was used before may be
  const int64_t whole = (pair_steps(depth) + routines.chunk - 1) / routines.chunk * routines.chunk;
  Guarded packed(rows * whole * routines.pair_size, unset);
  routines.pack_pairs(x, rows, depth, packed.data());
  return packed;
}

// Products of pairs in bfloat16, of which a routine may add up even and odd ones apart.
void compare_pairs(const Routines& routines, const std::string& name, int rows, int64_t depth, int columns) {
  const auto x = random_floats(rows * depth), bias = random_floats(PANEL), residual = random_floats(rows * PANEL);
  const Guarded panel = random_pairs(depth);
  const auto product = [&](const Routines& by, int most) {
    std::vector<float> y(rows * PANEL, 12345.0f);
    for (int first = 0; first < rows; first += most) {
      const int count = std::min(most, rows - first);
      const Guarded packed = pack_pairs(by, x.data() + first * depth, count, depth);
      Tile tile{};
      tile.rows = count;
      tile.x = packed.data();
      tile.panel = panel.data();
      tile.steps = pair_steps(depth);
      tile.y = y.data() + first * PANEL;
      tile.residual = residual.data() + first * PANEL;
      tile.stride = PANEL;
      tile.columns = columns;
      tile.bias = bias.data();
      tile.ahead = panel.data();
      multiply(by.pair_tiles, {tile});
    }
    return y;
  };
  const auto found = product(routines, routines.dense_rows);
  check(same_bits(found, product(routines, 1)), name + ": pairs of rows alone and together");
  check(near(found, product(PORTABLE, PORTABLE.dense_rows), 2e-6f * static_cast<float>(depth)),
        name + ": pairs, " + std::to_string(rows) + " rows of " + std::to_string(depth) + ", " +
            std::to_string(columns) + " columns");
}

// One tile of a call, with memory of its own.
struct Own {
  Own(const Routines& routines, bool bytes, int rows)
      : depth(1 + static_cast<int64_t>(generator() % 200)), bias(random_floats(PANEL)), scale(random_floats(PANEL)),
        residual(random_floats(rows * STRIDE)),
        panel(bytes ? Guarded(random_weights(steps_of(Kind::int8, depth) * PANEL * 4)) : random_pairs(depth)),
        packed(pack_rows(routines, bytes, rows)) {
    tile.rows = rows;
    tile.x = packed.x.data();
    tile.panel = panel.data();
    tile.steps = bytes ? steps_of(Kind::int8, depth) : pair_steps(depth);
    tile.stride = STRIDE;
    tile.columns = 1 + static_cast<int>(generator() % PANEL);
    tile.bias = generator() % 2 == 0 ? bias.data() : nullptr;
    tile.residual = generator() % 2 == 0 ? residual.data() : nullptr;
    tile.relu = generator() % 2 == 0;
    tile.scale = scale.data();
    tile.row_scale = packed.scale.data();
    tile.row_offset = packed.offset.data();
    tile.ahead = panel.data();
  }

  Packed pack_rows(const Routines& routines, bool bytes, int rows) const {
    const auto x = random_floats(rows * depth);
    if (bytes) return pack(routines, Kind::int8, x.data(), rows, depth);
    return Packed{pack_pairs(routines, x.data(), rows, depth), {}, {}};
  }

  static constexpr int STRIDE = PANEL + 5;
  const int64_t depth;
  const std::vector<float> bias, scale, residual;
  const Guarded panel;
  const Packed packed;
  Tile tile{};
};

// Tiles of one call have the bits of each one alone, whatever their rows are.
void compare_calls(const Routines& routines, const std::string& name, bool bytes) {
  const TileRoutine routine = bytes ? routines.int8_tiles : routines.pair_tiles;
  for (int count = 1; count <= MOST_TILES; ++count) {
    std::deque<Own> own;
    const int most = 1 + static_cast<int>(generator() % routines.dense_rows);
    for (int i = 0; i < count; ++i) {
      const int fewer = static_cast<int>(generator() % (count % 2 == 0 ? 2 : most));
      own.emplace_back(routines, bytes, std::max(1, most - fewer));
    }
    const size_t size = static_cast<size_t>(MOST_ROWS) * Own::STRIDE;
    std::vector<float> together(count * size, 12345.0f), alone = together;
    std::vector<Tile> tiles;
    for (int i = 0; i < count; ++i) {
      Tile tile = own[i].tile;
      tile.y = together.data() + i * size;
      tiles.push_back(tile);
      tile.y = alone.data() + i * size;
      multiply(routine, {tile});
    }
    multiply(routine, tiles);
    check(same_bits(together, alone), name + ": " + std::to_string(count) + " tiles of up to " + std::to_string(most) +
                                          " rows of " + (bytes ? "bytes" : "pairs"));
  }
}

// Numbers in bfloat16: to the nearest, ties to even; what is infinite or no number stays so, and in its row.
void compare_rounding(const Routines& routines, const std::string& name) {
  const float most = std::ldexp(1.99999988f, 127), one = 1.0f + std::ldexp(1.0f, -8),
              three = 1.0f + std::ldexp(3.0f, -8);
  const std::vector<float> x{one, three, -one, most, INFINITY, -INFINITY, NAN, -0.0f, 1.0f, 2.0f};
  const int rows = static_cast<int>(x.size());
  std::vector<uint16_t> panel(PANEL * 2, 0);
  for (int n = 0; n < PANEL; ++n) panel[n * 2] = 0x3f80;  // 1
  std::vector<float> found(rows * PANEL);
  for (int first = 0; first < rows; first += routines.dense_rows) {
    const int count = std::min(routines.dense_rows, rows - first);
    const Guarded packed = pack_pairs(routines, x.data() + first, count, 1);
    Tile tile{};
    tile.rows = count;
    tile.x = packed.data();
    tile.panel = panel.data();
    tile.steps = 1;
    tile.y = found.data() + first * PANEL;
    tile.stride = tile.columns = PANEL;
    tile.ahead = reinterpret_cast<const char*>(panel.data());
    multiply(routines.pair_tiles, {tile});
  }
  const std::vector<float> wanted{
      1.0f, 1.0f + std::ldexp(1.0f, -6), -1.0f, INFINITY, INFINITY, -INFINITY, NAN, 0.0f, 1.0f, 2.0f};
  for (int r = 0; r < rows; ++r) {
    for (int n = 0; n < PANEL; ++n) {
      const float y = found[r * PANEL + n];
      check(std::isnan(wanted[r]) ? std::isnan(y) : y == wanted[r], name + ": rounding of " + std::to_string(x[r]));
    }
  }
}

// Every number of 16 bits becomes the same float; a signal among what is no number may be lost.
void compare_widening(const Routines& routines, const std::string& name) {
  std::vector<uint16_t> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> a(halves.size()), b(halves.size());
  const auto same = [&] {
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(a[i]) ? !std::isnan(b[i]) : std::memcmp(&a[i], &b[i], 4) != 0) return false;
    }
    return true;
  };
  PORTABLE.widen_float16(halves.data(), 65536, a.data());
  routines.widen_float16(halves.data(), 65536, b.data());
  check(same(), name + ": float16 to float32");
  PORTABLE.widen_bfloat16(halves.data(), 65536, a.data());
  routines.widen_bfloat16(halves.data(), 65536, b.data());
  check(same(), name + ": bfloat16 to float32");
}

void compare_rows(const Routines& routines, const std::string& name, int64_t count) {
  const auto x = random_floats(count), gain = random_floats(count), offset = random_floats(count);
  auto a = x, b = x;
  PORTABLE.layer_norm(a.data(), count, gain.data(), offset.data(), 1e-5f);
  routines.layer_norm(b.data(), count, gain.data(), offset.data(), 1e-5f);
  check(near(b, a, 1e-4f), name + ": layer norm of " + std::to_string(count));
  a = b = x;
  PORTABLE.rms_norm(a.data(), count, gain.data(), 1e-5f);
  routines.rms_norm(b.data(), count, gain.data(), 1e-5f);
  check(near(b, a, 1e-4f), name + ": RMS norm of " + std::to_string(count));
  const float p = PORTABLE.dot(x.data(), gain.data(), count), q = routines.dot(x.data(), gain.data(), count);
  check(std::fabs(p - q) <= 1e-4f * (1 + std::fabs(p)), name + ": dot of " + std::to_string(count));
}

void compare_activations(const Routines& routines, const std::string& name) {
  std::vector<float> x(1024);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.2f * (static_cast<float>(i) - 512);
  for (int kind = 0; kind <= static_cast<int>(Activation::sigmoid); ++kind) {
    auto a = x, b = x;
    PORTABLE.activate(static_cast<Activation>(kind), a.data(), 1024);
    routines.activate(static_cast<Activation>(kind), b.data(), 1024);
    check(near(b, a, 2e-6f), name + ": activation " + std::to_string(kind));
  }
}

// Products of bytes and of pairs, of more rows than those of other kinds and of depths that end within a chunk.
void compare_dense(const Routines& routines, const std::string& name) {
  for (int rows = 1; rows <= routines.dense_rows; ++rows) {
    for (const int64_t depth : {1, 3, 4, 63, 64, 65, 130, 513}) {
      for (const int columns : {1, 16, 17, 32}) {
        compare_integers(routines, name, Kind::int8, rows, depth, columns);
        compare_pairs(routines, name, rows, depth, columns);
      }
    }
  }
  for (const bool bytes : {true, false}) compare_calls(routines, name, bytes);
  compare_rounding(routines, name);
  for (const int weight : {1, 128, 255}) {
    for (const float sign : {-1.0f, 1.0f}) compare_extremes(routines, name, static_cast<uint8_t>(weight), sign);
  }
}

void compare(const Routines& routines, const std::string& name) {
  for (int rows = 1; rows <= std::min(PORTABLE.rows, routines.rows); ++rows) {
    for (const int64_t depth : {1, 3, 4, 7, 31, 32, 33, 130, 513}) {
      for (const int columns : {1, 7, 8, 16, 17, 31, 32}) {
        for (const Kind kind : {Kind::int8, Kind::int4, Kind::int16}) {
          if (kind != Kind::int16 || depth % 2 == 0) compare_integers(routines, name, kind, rows, depth, columns);
        }
        compare_floats(routines, name, rows, depth, columns);
      }
    }
  }
  compare_dense(routines, name);
  compare_widening(routines, name);
  for (const int64_t count : {1, 7, 8, 9, 31, 64, 257}) compare_rows(routines, name, count);
  compare_activations(routines, name);
}

// Rounding to float16, with ties, numbers too small for it and too large.
void compare_narrowing() {
  std::vector<float> x;
  for (uint32_t bits = 0; bits < 0xffffffffu - 9973; bits += 9973) {
    float value;
    std::memcpy(&value, &bits, 4);
    if (!std::isnan(value)) x.push_back(value);
  }
  for (int i = 0; i < 4096; ++i) x.push_back(std::ldexp(static_cast<float>(2 * i + 1), -26));
  std::vector<uint16_t> a(x.size()), b(x.size());
  STEP_PORTABLE.narrow(x.data(), static_cast<int64_t>(x.size()), a.data());
  STEP.narrow(x.data(), static_cast<int64_t>(x.size()), b.data());
  check(a == b, "float32 to float16 of " + std::to_string(x.size()) + " numbers");
}

// Rows in int8 have the same bytes, and the attention over them the same results but for the order of sums.
void compare_quantized(int64_t depth) {
  constexpr int64_t KEYS = 37;
  const int64_t width = depth + BEFORE<int8_t>;
  std::vector<int8_t> a(KEYS * width), b(KEYS * width);
  for (int64_t row = 0; row < KEYS; ++row) {
    auto x = random_floats(depth);
    for (float& value : x) value = std::ldexp(value, static_cast<int>(6 * row) - 110);
    if (row % 5 == 0) x = random_floats(depth);
    STEP_PORTABLE.quantize(x.data(), depth, &a[row * width]);
    STEP.quantize(x.data(), depth, &b[row * width]);
  }
  check(a == b, "rows of int8 of " + std::to_string(depth));
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < KEYS; row += 5) rows.push_back(row);
  const auto query = random_floats(depth);
  const auto attend = [&](const StepRoutines& by, float cap) {
    std::vector<float> out(depth), scratch(scratch_size(KEYS));
    const int8_t* numbers = a.data() + BEFORE<int8_t>;
    const Memory<int8_t> memory{numbers, numbers, width, width, depth, depth, 0.2f, cap, rows.data(), 0};
    Group group;
    group.add(query.data(), out.data(), rows.data(), static_cast<int64_t>(rows.size()), nullptr, nullptr);
    by.attend_int8(memory, group, scratch.data());
    return out;
  };
  for (const float cap : {0.0f, 2.0f}) {
    const bool same = near(attend(STEP, cap), attend(STEP_PORTABLE, cap), 1e-5f);
    check(same, "attention in int8 of " + std::to_string(depth));
  }
}

void compare_scans(int64_t count) {
  auto logits = random_floats(count);
  for (size_t i = 3; i < logits.size(); i += 5) logits[i] = logits[i - 3];  // equal ones go by their place
  const auto scan = [&](const StepRoutines& by, std::vector<int64_t>& tokens) {
    std::vector<float> best(10);
    tokens.assign(10, -1);
    Best to{10, 0, best.data(), tokens.data()};
    float highest = 0;
    double sum = 0;
    by.scan(logits.data(), 5, count, to, highest, sum);
    best.push_back(highest);
    best.push_back(static_cast<float>(sum));
    return best;
  };
  const auto collect = [&](const StepRoutines& by, std::vector<int32_t>& places) {
    std::vector<float> found(count + COLLECT_MORE);
    places.assign(count + COLLECT_MORE, -1);
    const int64_t size = by.collect(logits.data(), count, 0.5f, found.data(), places.data());
    found.resize(size);
    places.resize(size);
    return found;
  };
  std::vector<int64_t> tokens[2];
  std::vector<int32_t> places[2];
  const bool best = near(scan(STEP, tokens[1]), scan(STEP_PORTABLE, tokens[0]), 1e-5f) && tokens[0] == tokens[1];
  check(best, "scan of " + std::to_string(count));
  const bool found = collect(STEP, places[1]) == collect(STEP_PORTABLE, places[0]) && places[0] == places[1];
  check(found, "collect of " + std::to_string(count));
}

}  // namespace

#if defined(__x86_64__)
bool has_pairs() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1) != 0;
}
#endif

int main() {
#if defined(__aarch64__)
  compare(NEON, "neon");
  if (&routines() == &DOTPROD) {
    compare(DOTPROD, "dotprod");
  } else {
    std::printf("no dot product here: those routines are NOT TESTED in this run\n");
  }
#else
  compare(AVX2, "avx2");
  compare(AVXVNNI, "avxvnni");
  compare(AVX512, "avx512");
  if (has_pairs()) {
    compare_dense(avx512bf16(), "avx512bf16");
#if defined(XFORMC_EMULATED_TILES)
    std::printf("AMX is emulated\n");
#endif
    if (may_use_tiles()) {
      check(&routines() == &amx(), "the routines of a processor with AMX");
      compare_dense(amx(), "amx");
    } else {
      std::printf("Linux gives no tiles here: AMX's routines are NOT TESTED in this run\n");
    }
  } else {
    std::printf("no BF16 here: its routines, and AMX's, are NOT TESTED in this run\n");
  }
#endif
  compare_narrowing();
  for (const int64_t depth : {1, 7, 8, 31, 64, 130}) compare_quantized(depth);
  for (const int64_t count : {1, 3, 8, 31, 32, 100, 1024}) compare_scans(count);
  std::printf("%d comparisons, %d differ\n", compared, failures);
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
