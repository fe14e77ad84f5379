#include "sha256.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace xformc {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes (section 4.2.2).
alignas(16) constexpr uint32_t ROUNDS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using Compress = void (*)(uint32_t* state, const unsigned char* blocks, size_t count);

uint32_t rotate(uint32_t value, int bits) { return value >> bits | value << (32 - bits); }

void compress_portable(uint32_t* state, const unsigned char* blocks, size_t count) {
  for (; count > 0; --count, blocks += 64) {
    uint32_t w[64];
    for (int t = 0; t < 16; ++t) {
      const unsigned char* p = blocks + 4 * t;
      w[t] = uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
    }
    for (int t = 16; t < 64; ++t) {
      const uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
      const uint32_t s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10;
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    uint32_t v[8];
    std::copy_n(state, 8, v);
    for (int t = 0; t < 64; ++t) {
      const uint32_t s1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
      const uint32_t one = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + ROUNDS[t] + w[t];
      const uint32_t s0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
      const uint32_t two = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
      std::copy_backward(v, v + 7, v + 8);
      v[4] += one;
      v[0] = one + two;
    }
    for (int i = 0; i < 8; ++i) state[i] += v[i];
  }
}

#if defined(__x86_64__)

// The instructions hold the state as (a b e f) and (c d g h), each from its highest word down.
__attribute__((target("sha,sse4.1,ssse3"))) void compress_sha(uint32_t* state, const unsigned char* blocks,
                                                              size_t count) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i abcd = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state));
  const __m128i efgh = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state + 4));
  const __m128i badc = _mm_shuffle_epi32(abcd, 0xb1), hgfe = _mm_shuffle_epi32(efgh, 0x1b);
  __m128i abef = _mm_alignr_epi8(badc, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, badc, 0xf0);
  for (; count > 0; --count, blocks += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];  // the last sixteen words of the message schedule
    for (int group = 0; group < 16; ++group) {
      __m128i& now = w[group % 4];
      if (group < 4) {
        now = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks) + group), big_endian);
      } else {
        const __m128i one = w[(group + 1) % 4], two = w[(group + 2) % 4], three = w[(group + 3) % 4];
        now = _mm_add_epi32(_mm_sha256msg1_epu32(now, one), _mm_alignr_epi8(three, two, 4));
        now = _mm_sha256msg2_epu32(now, three);
      }
      const __m128i sum = _mm_add_epi32(now, _mm_load_si128(reinterpret_cast<const __m128i*>(ROUNDS) + group));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

bool has_sha() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("sse4.1") && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b >> 29 & 1) != 0;
}

const Compress compress = has_sha() ? compress_sha : compress_portable;

#else

const Compress compress = compress_portable;

#endif

}  // namespace

void Sha256::add(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  total_ += size;
  if (waiting_size_ > 0) {
    const size_t taken = std::min(size, sizeof waiting_ - waiting_size_);
    std::copy_n(bytes, taken, waiting_ + waiting_size_);
    waiting_size_ += taken;
    bytes += taken;
    size -= taken;
    if (waiting_size_ < sizeof waiting_) return;
    compress(state_, waiting_, 1);
  }
  compress(state_, bytes, size / 64);
  waiting_size_ = size % 64;
  std::copy_n(bytes + size - waiting_size_, waiting_size_, waiting_);
}

std::string Sha256::hex() {
  const uint64_t bits = total_ * 8;
  unsigned char end[72] = {0x80};
  const size_t zeros = (waiting_size_ < 56 ? 56 : 120) - waiting_size_;
  for (int i = 0; i < 8; ++i) end[zeros + i] = static_cast<unsigned char>(bits >> (56 - 8 * i));
  add(end, zeros + 8);
  std::string text;
  for (const uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
  }
  return text;
}

std::string sha256(std::string_view data) {
  Sha256 hash;
  hash.add(data.data(), data.size());
  return hash.hex();
}

}  // namespace xformc
