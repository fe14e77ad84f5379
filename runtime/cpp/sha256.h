// SHA-256 (FIPS 180-4), with the processor's own instructions where it has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace xformc {

class Sha256 {
 public:
  void add(const void* data, size_t size);

  // The digest as 64 lower-case hexadecimal digits; nothing may be added afterwards.
  std::string hex();

 private:
  uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  unsigned char waiting_[64] = {};
  size_t waiting_size_ = 0;
  uint64_t total_ = 0;
};

std::string sha256(std::string_view data);

}  // namespace xformc
