// Sounds: .wav files of PCM or float samples. The samples are those of xformc's Python runtime, to the bit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xformc {

struct Sound {
  int64_t rate = 0;            // samples in a second
  std::vector<float> samples;  // from -1 to 1, the mean of all channels
};

// The content of a .wav file; `place` is for errors. Throws Failure for one that is damaged, or has another coding.
Sound parse_wav(std::string_view content, const std::string& place);

// The samples of a .wav file at this rate, as many as `hop` at each position, the last one padded with zeros. Throws
// Failure for a file that cannot be read, is too large, or has another rate.
std::vector<float> read_wav(const std::string& path, const std::string& input, int64_t rate, int64_t hop);

}  // namespace xformc
