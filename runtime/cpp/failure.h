// The error of every function here: api.cc turns it into an xformc_error, and nothing else crosses the C API.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "include/xformc.h"

namespace xformc {

struct Failure : std::exception {
  Failure(xformc_status status_, std::string message_, std::string place_ = "", std::string hint_ = "")
      : status(status_), message(std::move(message_)), place(std::move(place_)), hint(std::move(hint_)) {}

  const char* what() const noexcept override { return message.c_str(); }

  xformc_status status;
  std::string message, place, hint;
};

inline Failure invalid_argument(std::string message, std::string place = "", std::string hint = "") {
  return {XFORMC_INVALID_ARGUMENT, std::move(message), std::move(place), std::move(hint)};
}

inline Failure invalid_engine(std::string message, std::string place = "", std::string hint = "") {
  return {XFORMC_INVALID_ENGINE, std::move(message), std::move(place), std::move(hint)};
}

inline Failure cancelled() { return {XFORMC_CANCELLED, "the call was cancelled"}; }

// Words as a message lists them.
inline std::string joined(const std::vector<std::string>& words, const char* between = ", ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

inline constexpr const char* COPY = "copy the engine's folder again, or rebuild it with `xformc build`";
inline constexpr const char* OTHER_VERSION =
    "rebuild the engine with `xformc build`, or run it with the xformc that built it";
inline constexpr const char* BUILD_FOR_CPUS = "build with --target native, cpu or portable";
inline constexpr const char* CHANGED = "the content has changed since it was built: its sha256 differs";
inline constexpr const char* REBUILD = "copy the engine again, or rebuild it with `xformc build`";

}  // namespace xformc
