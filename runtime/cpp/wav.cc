#include "wav.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "failure.h"
#include "numbers.h"

namespace xformc {
namespace {

constexpr size_t MOST_BYTES = size_t{1} << 30;  // of a file
constexpr uint32_t MOST_CHANNELS = 64;
constexpr uint32_t PCM = 1, FLOAT = 3, EXTENSIBLE = 0xFFFE;
constexpr size_t FORMAT = 16;              // the bytes of a format
constexpr size_t EXTENDED = FORMAT + 10;   // those of an extensible one, up to its coding
constexpr size_t BLOCK = size_t{1} << 20;  // what is read at once
constexpr const char* CONVERT = "convert it, for example: ffmpeg -i INPUT -c:a pcm_s16le OUTPUT.wav";

uint32_t number_at(std::string_view data, size_t at, size_t bytes) {
  uint32_t number = 0;
  for (size_t i = bytes; i-- > 0;) number = number << 8 | static_cast<unsigned char>(data[at + i]);
  return number;
}

Failure wrong(const std::string& reason, const std::string& place, const char* hint = CONVERT) {
  return invalid_argument("not a .wav file that can be read: " + reason, place, hint);
}

// How samples are written.
struct Coding {
  uint32_t code, channels, rate, bits;

  size_t block() const { return size_t{channels} * bits / 8; }  // the bytes of one sample of every channel
};

Coding read_coding(std::string_view part, const std::string& place) {
  if (part.size() < FORMAT) throw wrong("its format has " + std::to_string(part.size()) + " bytes", place);
  Coding coding{number_at(part, 0, 2), number_at(part, 2, 2), number_at(part, 4, 4), number_at(part, 14, 2)};
  const uint32_t block = number_at(part, 12, 2);
  if (coding.code == EXTENSIBLE && part.size() >= EXTENDED) coding.code = number_at(part, EXTENDED - 2, 2);
  const bool pcm = coding.code == PCM && (coding.bits == 16 || coding.bits == 24 || coding.bits == 32);
  if (!pcm && !(coding.code == FLOAT && coding.bits == 32)) {
    throw wrong("samples of coding " + std::to_string(coding.code) + " with " + std::to_string(coding.bits) +
                    " bits, not PCM of 16, 24 or 32 bits or float of 32",
                place);
  }
  if (coding.channels < 1 || coding.channels > MOST_CHANNELS || coding.rate == 0 || block != coding.block()) {
    throw wrong(std::to_string(coding.channels) + " channels, " + grouped(coding.rate) + " samples a second, " +
                    std::to_string(block) + " bytes",
                place);
  }
  return coding;
}

// One sample, from -1 to 1.
double sample_at(const Coding& coding, std::string_view content, size_t at) {
  const size_t bytes = coding.bits / 8;
  const uint32_t number = number_at(content, at, bytes) << (32 - coding.bits);
  if (coding.code == FLOAT) {
    float value = 0;
    std::memcpy(&value, &number, sizeof value);
    return value;
  }
  return static_cast<double>(static_cast<int32_t>(number)) / 2147483648.0;
}

// The mean of the channels, added in their order.
std::vector<float> mixed(const Coding& coding, std::string_view content, const std::string& place) {
  std::vector<float> samples(content.size() / coding.block());
  bool finite = true;
  for (size_t i = 0; i < samples.size(); ++i) {
    double total = 0;
    for (uint32_t channel = 0; channel < coding.channels; ++channel) {
      total += sample_at(coding, content, i * coding.block() + channel * size_t{coding.bits} / 8);
    }
    samples[i] = static_cast<float>(total / coding.channels);
    finite = finite && std::isfinite(total);
  }
  if (!finite) throw wrong("a sample is not a finite number", place, "");
  return samples;
}

std::string read_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw invalid_argument(std::string("cannot be read: ") + std::strerror(errno), path);
  std::string data;
  ssize_t count = 0;
  int error = 0;
  do {
    const size_t had = data.size();
    data.resize(had + BLOCK);
    count = read(file, &data[had], BLOCK);
    error = errno;
    data.resize(had + static_cast<size_t>(std::max<ssize_t>(count, 0)));
  } while ((count > 0 || (count < 0 && error == EINTR)) && data.size() <= MOST_BYTES);
  close(file);
  if (count < 0 && error != EINTR) {
    throw invalid_argument(std::string("cannot be read: ") + std::strerror(error), path);
  }
  if (data.size() <= MOST_BYTES) return data;
  throw invalid_argument("larger than " + grouped(static_cast<int64_t>(MOST_BYTES)) + " bytes", path,
                         "cut it into shorter files");
}

std::string lower_case(std::string text) {
  for (char& letter : text) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return text;
}

}  // namespace

Sound parse_wav(std::string_view content, const std::string& place) {
  if (content.empty()) throw wrong("it is empty", place, "");
  if (content.size() < 12 || content.substr(0, 4) != "RIFF" || content.substr(8, 4) != "WAVE") {
    throw wrong("it does not begin with RIFF and WAVE", place);
  }
  std::optional<Coding> coding;
  for (size_t at = 12; at <= content.size() && content.size() - at >= 8;) {
    const std::string_view name = content.substr(at, 4);
    const size_t size = number_at(content, at + 4, 4);
    at += 8;
    if (size > content.size() - at) {
      throw wrong("a part has " + grouped(static_cast<int64_t>(size)) + " bytes, and " +
                      grouped(static_cast<int64_t>(content.size() - at)) + " follow",
                  place);
    }
    const std::string_view part = content.substr(at, size);
    if (name == "fmt ") {
      coding = read_coding(part, place);
    } else if (name == "data") {
      if (!coding) throw wrong("its samples come before their format", place);
      if (size == 0) throw wrong("it has no samples", place, "");
      if (size % coding->block() != 0) {
        throw wrong(grouped(static_cast<int64_t>(size)) + " bytes are no whole number of samples of " +
                        std::to_string(coding->block()) + " bytes",
                    place);
      }
      return {coding->rate, mixed(*coding, part, place)};
    }
    at += size + size % 2;
  }
  throw wrong("it has no samples", place, "");
}

std::vector<float> read_wav(const std::string& path, const std::string& input, int64_t rate, int64_t hop) {
  if (lower_case(std::filesystem::path(path).extension().string()) != ".wav") {
    throw invalid_argument("'" + input + "' is read from a .wav file", path.empty() ? "." : path);
  }
  Sound sound = parse_wav(read_file(path), path);
  if (sound.rate != rate) {
    const std::string name = std::filesystem::path(path).filename().string();
    throw invalid_argument(
        "has " + grouped(sound.rate) + " samples a second; this model takes " + grouped(rate), path,
        "convert it, for example: ffmpeg -i " + name + " -ar " + std::to_string(rate) + " converted.wav");
  }
  const auto each = static_cast<size_t>(hop);
  sound.samples.resize((sound.samples.size() + each - 1) / each * each, 0);
  return std::move(sound.samples);
}

}  // namespace xformc
