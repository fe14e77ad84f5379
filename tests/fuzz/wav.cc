// Fuzzes .wav files: what is read has finite samples, as many as the file has room for.
#include "../../runtime/cpp/wav.h"

#include <cmath>
#include <cstdlib>

#include "../../runtime/cpp/failure.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const xformc::Sound sound = xformc::parse_wav({reinterpret_cast<const char*>(data), size}, "fuzz.wav");
    if (sound.rate < 1 || sound.samples.empty() || sound.samples.size() > size) std::abort();
    for (const float sample : sound.samples) {
      if (!std::isfinite(sample)) std::abort();
    }
  } catch (const xformc::Failure&) {
  }
  return 0;
}
