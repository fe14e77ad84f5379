// Numbers and vectors as Python's commands write them.
#pragma once

#include <string>

#include "../include/xformc.hpp"

namespace run {

// Nested lists, with 6 digits after the point.
std::string json_array(const xformc::Value& value);

// Rows separated by spaces, and the numbers of a row by commas, with 6 significant digits. A single vector is one row;
// of numbers, each is one.
std::string numbers_line(const xformc::Value& value, bool vectors);

}  // namespace run
