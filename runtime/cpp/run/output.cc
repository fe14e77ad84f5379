#include "output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <random>

#include "../include/xformc.hpp"
#include "characters.h"
#include "lines.h"

namespace run {
namespace {

namespace fs = std::filesystem;

char unfinished[PATH_MAX];  // for the signal handler: the file to remove, or ""

xformc::Error failed(const std::string& message, const std::string& place = "", const std::string& hint = "") {
  return {XFORMC_INVALID_ARGUMENT, message, place, hint};
}

xformc::Error cannot_be_written(int error, const std::string& place) {
  return failed(std::string("cannot be written: ") + std::strerror(error), place);
}

void set_unfinished(const std::string& path) {
  unfinished[0] = '\0';
  if (path.size() >= sizeof unfinished) return;
  std::memcpy(unfinished + 1, path.c_str() + (path.empty() ? 0 : 1), path.size());
  unfinished[0] = path.empty() ? '\0' : path[0];  // last, so that a signal between sees no half of a name
}

void end(int signal) {
  if (unfinished[0] != '\0') unlink(unfinished);
  if (signal == SIGINT && write(2, "interrupted\n", 12) < 0) _exit(128 + signal);
  _exit(128 + signal);
}

void on(int signal, void (*handler)(int)) {
  struct sigaction action = {}, before = {};
  action.sa_handler = handler;
  sigaction(signal, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
}

std::string random_name() {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(std::random_device()()));
  return text;
}

}  // namespace

Output::Output(const std::string& path) {
  if (path == "-") return;
  std::error_code none;
  const fs::file_status status = fs::status(path, none);
  if (fs::is_directory(status)) throw failed("is a folder", path, "give --output a file");
  if (const std::string program = compressor(path); !program.empty()) {
    throw failed("xformc-run does not write " + program, path, "xformc-run ENGINE | " + program + " > FILE");
  }
  if (!fs::exists(status) || fs::is_regular_file(status)) {
    open_beside(path);
    return;
  }
  file_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);  // a pipe or a device is written to, not replaced
  if (file_ < 0) throw cannot_be_written(errno, path);
}

void Output::open_beside(const std::string& path) {
  std::error_code error;
  target_ = fs::weakly_canonical(fs::absolute(path), error);
  if (!error) fs::create_directories(target_.parent_path(), error);
  if (error) throw cannot_be_written(error.value(), path);
  partial_ = target_.parent_path() / ("." + target_.filename().string() + "." + random_name() + ".partial");
  set_unfinished(partial_.string());
  file_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file_ >= 0) return;
  set_unfinished("");
  throw cannot_be_written(errno, path);
}

Output::~Output() {
  if (partial_.empty()) return;
  unlink(partial_.c_str());
  set_unfinished("");
}

void Output::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(file_, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<size_t>(count));
    } else if (errno == EPIPE) {
      throw ReaderGone();
    } else if (errno != EINTR) {
      throw failed(std::strerror(errno));
    }
  }
}

void Output::finish() {
  if (partial_.empty()) {
    if (close(file_) < 0) throw failed(std::strerror(errno));
    return;
  }
  struct stat before;
  const bool replaces = stat(target_.c_str(), &before) == 0;
  if ((replaces && fchmod(file_, before.st_mode & 07777) < 0) || fsync(file_) < 0 || close(file_) < 0 ||
      rename(partial_.c_str(), target_.c_str()) < 0) {
    throw cannot_be_written(errno, target_.string());
  }
  set_unfinished("");
  partial_.clear();
}

void prepare_process() {
  for (int file = 0; file < 3; ++file) {
    if (fcntl(file, F_GETFD) == -1) (void)!open("/dev/null", file == 0 ? O_RDONLY : O_WRONLY);
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  on(SIGINT, end);
  on(SIGTERM, end);
}

void say(std::string_view message) {
  const std::string text = printable(message) + "\n";
  (void)!::write(2, text.data(), text.size());
}

}  // namespace run
