// What the fuzzers share: a folder of their own, and a data provider.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace fuzz {

// A new folder of this process, in memory where the system has such a file system.
inline std::filesystem::path make_folder() {
  const char* base = std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp";
  std::string name = std::string(base) + "/xformc-fuzz-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) std::abort();
  static const std::string kept = name;
  std::atexit([] { std::filesystem::remove_all(kept); });
  return name;
}

inline void write_file(const std::filesystem::path& path, std::string_view data) {
  std::ofstream(path, std::ios::binary).write(data.data(), static_cast<std::streamsize>(data.size()));
}

// Takes values off the data; zeros at its end.
class Reader {
 public:
  Reader(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  template <typename T>
  T take() {
    T value{};
    const size_t bytes = std::min(sizeof value, size_);
    std::memcpy(&value, data_, bytes);
    skip(bytes);
    return value;
  }

  std::string take_text(size_t most) {
    const size_t bytes = std::min({size_t{take<uint16_t>()}, most, size_});
    std::string text(reinterpret_cast<const char*>(data_), bytes);
    skip(bytes);
    return text;
  }

  std::string_view rest() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  void skip(size_t bytes) {
    data_ += bytes;
    size_ -= bytes;
  }

  const uint8_t* data_;
  size_t size_;
};

}  // namespace fuzz
