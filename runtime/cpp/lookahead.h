// Chooses batches of similar size from the items that were read ahead, the oldest first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace xformc {

// Waiting items, by number, with their sizes in tokens. The cost of a batch is its rows times its largest size.
// runtime/lookahead.py chooses the same batches.
class Lookahead {
 public:
  Lookahead(int64_t budget, int64_t workers) : budget_(budget), workers_(workers) {}

  bool empty() const { return sizes_.empty(); }

  // Adds an item; numbers must increase.
  void add(size_t number, int64_t size);

  // Removes the next batch and returns its numbers, in order; at least one item must be waiting.
  // The batch holds the oldest item, so that results can leave in order, and the items nearest to it in size, within
  // the budget. With `last`, when no more items will follow, it holds the largest item and at most one worker's share
  // of the rest, so that the workers finish at the same time.
  std::vector<size_t> take(bool last);

  // Drops the items from this number on.
  void drop_from(size_t number);

 private:
  size_t oldest_place();
  int64_t share() const;

  int64_t budget_, workers_;
  std::vector<std::pair<int64_t, size_t>> sorted_;  // size, number
  std::map<size_t, int64_t> sizes_;
  __int128 total_ = 0;  // an engine may ask for sizes whose sum needs more than 64 bits
};

}  // namespace xformc
