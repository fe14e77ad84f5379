// Where results are written: standard output, or a file that is there only when all of them are.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace run {

// Thrown when the reader of a pipe has gone.
struct ReaderGone {};

class Output {
 public:
  // "-" is standard output. Throws Error if the file cannot be written.
  explicit Output(const std::string& path);
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output();

  // Writes at once, without a buffer. Throws Error or ReaderGone.
  void write(std::string_view text);

  // Says that all is written: the file replaces the one that was there.
  void finish();

 private:
  void open_beside(const std::string& path);

  int file_ = 1;
  std::filesystem::path target_, partial_;  // "" unless the file is replaced
};

// Lets SIGINT and SIGTERM remove the unfinished file before they end the process; writing to a pipe without a reader,
// or more than a file may hold, becomes an error. Standard streams that are closed become empty ones.
void prepare_process();

// Writes a message to standard error.
void say(std::string_view message);

}  // namespace run
