// A short list of the best candidates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace xformc {

// The best offers, best first; ties go to the earlier offer.
template <typename Item>
class Ranking {
 public:
  explicit Ranking(int64_t most) : most_(static_cast<size_t>(most)) { items_.reserve(most_ + 1); }

  void offer(float score, const Item& item) {
    if (items_.size() == most_ && !(score > items_.back().first)) return;
    auto place = items_.end();
    while (place != items_.begin() && !(std::prev(place)->first >= score)) --place;
    items_.insert(place, {score, item});
    if (items_.size() > most_) items_.pop_back();
  }
  // Adds an item after the others, whatever its score, if there is room.
  void append(float score, const Item& item) {
    if (items_.size() < most_) items_.emplace_back(score, item);
  }
  const std::pair<float, Item>& operator[](int64_t i) const { return items_[static_cast<size_t>(i)]; }
  int64_t size() const { return static_cast<int64_t>(items_.size()); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  size_t most_;
  std::vector<std::pair<float, Item>> items_;
};

}  // namespace xformc
