#include "lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "../include/xformc.hpp"
#include "../numbers.h"
#include "../unicode.h"

namespace run {
namespace {

constexpr size_t LINE_BYTES = size_t{1} << 20;  // the maximum bytes of a line, its line ending included
constexpr size_t BLOCK = 8192;                  // what is read at once
constexpr int64_t LINES_EACH = 8;               // the fewest lines for which a worker is worth its core
constexpr std::string_view BYTE_ORDER_MARK = "\xef\xbb\xbf";

xformc::Error invalid(const std::string& message, const std::string& place, const std::string& hint = "") {
  return {XFORMC_INVALID_ARGUMENT, message, place, hint};
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

std::string compressor(std::string_view path) {
  return ends_with(path, ".gz") ? "gzip" : ends_with(path, ".zst") ? "zstd" : "";
}

Lines::Lines(const std::string& path) : path_(path == "-" ? "" : path) {
  if (path_.empty()) return;
  if (const std::string program = compressor(path); !program.empty()) {
    throw invalid("xformc-run does not read " + program, path, program + " -dc FILE | xformc-run ENGINE");
  }
  if (ends_with(path, ".npz")) {
    throw invalid("xformc-run reads lines of text, not arrays", path, "use `xformc predict`, or the C++ API");
  }
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) throw invalid(std::string("cannot be read: ") + std::strerror(errno), path);
}

Lines::~Lines() {
  if (file_ > 0) close(file_);
}

bool Lines::is_terminal() const { return !has_names_ && path_.empty() && isatty(file_) == 1; }

int64_t Lines::workers(int64_t most) {
  if (has_names_) return std::clamp<int64_t>(static_cast<int64_t>(names_.size()) / LINES_EACH, 1, most);
  struct stat status;
  const bool regular = fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
  if (!path_.empty() && !regular) return most;
  fill();
  if (data_.size() >= BLOCK) return most;
  return std::clamp<int64_t>(std::count(data_.begin(), data_.end(), '\n') / LINES_EACH, 1, most);
}

bool Lines::next(std::string& line) {
  if (has_names_) {
    if (number_ == names_.size()) return false;
    line = names_[number_++];
    return true;
  }
  size_t end = std::string::npos;
  for (size_t from = begin_; (end = data_.find('\n', from)) == std::string::npos && !ended_;) {
    if (data_.size() - begin_ > LINE_BYTES + BYTE_ORDER_MARK.size()) break;
    data_.erase(0, begin_);
    begin_ = 0;
    from = data_.size();
    fill();
  }
  if (end == std::string::npos) end = data_.size() - 1;
  if (begin_ == data_.size()) return false;
  std::string_view found(data_.data() + begin_, end + 1 - begin_);
  begin_ = end + 1;
  if (++number_ == 1 && found.substr(0, 3) == BYTE_ORDER_MARK) found.remove_prefix(3);
  check(found);
  if (ends_with(found, "\n")) found.remove_suffix(1);
  if (ends_with(found, "\r")) found.remove_suffix(1);
  line = found;
  return true;
}

// Reads more, once; what cannot be read is an error.
bool Lines::fill() {
  const size_t had = data_.size();
  data_.resize(had + BLOCK);
  ssize_t count = 0;
  do {
    count = read(file_, &data_[had], BLOCK);
  } while (count < 0 && errno == EINTR);
  const int failed = errno;
  data_.resize(had + static_cast<size_t>(std::max<ssize_t>(count, 0)));
  if (count < 0) {
    const std::string reason = std::strerror(failed);
    throw path_.empty() ? invalid(reason, "") : invalid("cannot be read: " + reason, path_);
  }
  ended_ = count == 0;
  return !ended_;
}

void Lines::check(std::string_view line) const {
  const std::string place = (path_.empty() ? "<stdin>" : path_) + ":" + std::to_string(number_);
  if (line.size() > LINE_BYTES) {
    throw invalid("the line is longer than " + xformc::grouped(LINE_BYTES) + " bytes", place,
                  "each line is one text; is this a text file?");
  }
  if (const size_t nul = line.find('\0'); nul != std::string_view::npos) {
    throw invalid("NUL byte at byte column " + std::to_string(nul + 1), place, "is this a text file?");
  }
  size_t at = 0;
  while (at < line.size() && xformc::next_character(line, at) != xformc::NO_CHARACTER) {
  }
  if (at == line.size()) return;
  char byte[8];
  std::snprintf(byte, sizeof byte, "0x%02x", static_cast<unsigned char>(line[at]));
  throw invalid(std::string("not UTF-8: byte ") + byte + " at byte column " + std::to_string(at + 1), place,
                "convert it first, for example: iconv -f latin1 -t utf-8");
}

}  // namespace run
