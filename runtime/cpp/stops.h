// Stop strings: texts before which a continuation ends, wherever the borders of its tokens are (docs/search.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "include/xformc.h"

namespace xformc {

// The stop strings of a call. The first one in a text is the one that ends first, the longest if several do.
class Stops {
 public:
  Stops() = default;

  // Throws Failure for one that is empty, too long or not UTF-8, and for too many.
  Stops(const xformc_text* texts, size_t count);

  bool empty() const { return texts_.empty(); }

  // Whether the text has a stop string.
  bool found(std::string_view text) const;

  // The text before its first stop string.
  std::string_view cut(std::string_view text) const;

  // The text without the longest end that begins a stop string, which more text may complete.
  std::string_view settled(std::string_view text) const;

 private:
  std::vector<std::string> texts_;
};

}  // namespace xformc
