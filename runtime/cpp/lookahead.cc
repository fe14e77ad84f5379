#include "lookahead.h"

#include <algorithm>

namespace xformc {
namespace {

// The last batches may use 1/SMALLEST_SHARE of the budget: smaller ones cost more than balanced workers gain.
constexpr int64_t SMALLEST_SHARE = 8;

}  // namespace

void Lookahead::add(size_t number, int64_t size) {
  const std::pair<int64_t, size_t> item(size, number);
  sorted_.insert(std::lower_bound(sorted_.begin(), sorted_.end(), item), item);
  sizes_[number] = size;
  total_ += size;
}

std::vector<size_t> Lookahead::take(bool last) {
  size_t low = last ? sorted_.size() - 1 : oldest_place(), high = low + 1;
  const int64_t budget = last ? share() : budget_;
  while (low > 0 || high < sorted_.size()) {
    const auto rows = static_cast<int64_t>(high - low + 1);
    const int64_t largest = sorted_[high - 1].first;
    const bool fits_above = high < sorted_.size() && sorted_[high].first <= budget / rows;
    const bool fits_below = low > 0 && largest <= budget / rows;
    const bool nearer_below =
        fits_above && fits_below && sorted_[low].first - sorted_[low - 1].first <= sorted_[high].first - largest;
    if (fits_above && !nearer_below) {
      ++high;
    } else if (fits_below) {
      --low;
    } else {
      break;
    }
  }
  std::vector<size_t> numbers;
  for (size_t i = low; i < high; ++i) numbers.push_back(sorted_[i].second);
  std::sort(numbers.begin(), numbers.end());
  sorted_.erase(sorted_.begin() + static_cast<int64_t>(low), sorted_.begin() + static_cast<int64_t>(high));
  for (const size_t number : numbers) {
    total_ -= sizes_[number];
    sizes_.erase(number);
  }
  return numbers;
}

void Lookahead::drop_from(size_t number) {
  sorted_.erase(std::remove_if(sorted_.begin(), sorted_.end(), [=](const auto& item) { return item.second >= number; }),
                sorted_.end());
  for (auto item = sizes_.lower_bound(number); item != sizes_.end(); item = sizes_.erase(item)) total_ -= item->second;
}

size_t Lookahead::oldest_place() {
  const auto& [number, size] = *sizes_.begin();
  const auto place = std::lower_bound(sorted_.begin(), sorted_.end(), std::pair(size, number));
  return static_cast<size_t>(place - sorted_.begin());
}

int64_t Lookahead::share() const {
  if (workers_ == 1) return budget_;
  const __int128 share = std::max<__int128>(total_ / workers_, budget_ / SMALLEST_SHARE);
  return static_cast<int64_t>(std::min<__int128>(budget_, share));
}

}  // namespace xformc
