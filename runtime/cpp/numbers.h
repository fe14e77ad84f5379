// Numbers as the messages of both runtimes write them.
#pragma once

#include <cstdint>
#include <string>

namespace xformc {

// 1234567 as "1,234,567".
std::string grouped(int64_t number);

// The shortest decimal that reads back as the same double, with ".0" after a whole number.
std::string shortest(double number);

// Six significant digits, as printf's %g.
std::string rough(double number);

}  // namespace xformc
