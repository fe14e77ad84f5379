// Lines of a file or of standard input: strict UTF-8, bounded length, and a line number in every error.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace run {

// The program for files with the ending of this name, gzip or zstd; "" for text that is not compressed.
std::string compressor(std::string_view path);

class Lines {
 public:
  // "-" is standard input. Throws Error if the file cannot be opened.
  explicit Lines(const std::string& path);
  // The lines are these names.
  explicit Lines(std::vector<std::string> names) : names_(std::move(names)), has_names_(true) {}
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  ~Lines();

  bool is_terminal() const;

  // The number of batches to run at the same time, at most `most`: one for every few of the lines that wait.
  int64_t workers(int64_t most);

  // Sets `line` to the next line without its ending, LF or CRLF, and returns true; false at the end. A leading byte
  // order mark is dropped. Throws Error for a line that is invalid UTF-8, has a NUL byte or is longer than 1 MiB.
  bool next(std::string& line);

 private:
  bool fill();
  void check(std::string_view line) const;

  const std::string path_;
  const std::vector<std::string> names_;
  const bool has_names_ = false;
  int file_ = 0;
  std::string data_;
  size_t begin_ = 0, number_ = 0;
  bool ended_ = false;
};

}  // namespace run
