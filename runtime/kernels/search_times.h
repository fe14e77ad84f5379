// Texts with timestamps (docs/search.md): which tokens may follow, by the times that a text has.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernel.h"

namespace xformc {

// The tokens that texts with timestamps follow, which are attributes of Candidates and its kin.
struct Times {
  static constexpr int64_t NONE = -1;

  Times() = default;
  explicit Times(const Attributes& info)
      : first(info.integer_or("times_first", NONE)), latest(info.integer_or("times_latest", NONE)),
        special(info.integer_or("times_special", NONE)), silent(info.integer_or("times_silent", NONE)) {}

  bool known() const { return first >= 0; }

  int64_t first = NONE;    // it and all tokens after it are times
  int64_t latest = NONE;   // the last one that a text may begin with
  int64_t special = NONE;  // tokens before it are words
  int64_t silent = NONE;   // never follows
};

// What Candidates and its kin know of the written text, as attributes.
struct Written {
  explicit Written(const Attributes& info)
      : pad(info.integer_or("pad", 0)), ends(info.integer_or("ends", 1)), times(info) {
    require(ends >= 1, "there must be at least 1 end token");
  }

  int64_t pad;
  int64_t ends;  // how many tokens end a text
  Times times;
};

// What may follow a text with timestamps: some times and some other tokens.
class TimedRow {
 public:
  // `text` has `length` tokens behind the prefix.
  TimedRow(const Times& times, const int64_t* text, int64_t length, int64_t vocabulary) : times_(times) {
    const auto is_time = [&](int64_t place) { return text[place] >= times.first; };
    const bool last = length >= 1 && is_time(length - 1), second = length < 2 || is_time(length - 2);
    const bool ends_text = last && !second;  // the end of a text, which a time or the end token follows
    int64_t newest = times.first - 1;
    for (int64_t i = 0; i < length; ++i) newest = std::max(newest, text[i]);
    least_ = ends_text ? newest : newest + 1;
    most_ = length == 0 ? std::min(times.latest, vocabulary - 1) : vocabulary - 1;
    if (last && second) most_ = least_ - 1;  // a pair of times, or the first one, which text follows
    from_ = length == 0 ? times.first : ends_text ? times.special : 0;
  }

  bool allows_time(int64_t token) const { return token >= least_ && token <= most_; }
  bool allows_text(int64_t token) const { return token >= from_ && token < times_.first && token != times_.silent; }

  int64_t least() const { return least_; }
  int64_t most() const { return most_; }

  // Removes the text from the scores of tokens that may follow if all times together are likelier than the likeliest of it.
  void choose(std::vector<std::pair<float, int64_t>>& scores) const {
    double highest = -std::numeric_limits<double>::infinity(), text = highest, sum = 0;
    for (const auto& [score, token] : scores) {
      double& best = token >= times_.first ? highest : text;
      best = std::max<double>(best, score);
    }
    if (!(highest > -std::numeric_limits<double>::infinity())) return;
    for (const auto& [score, token] : scores) {
      if (token >= times_.first) sum += std::exp(score - highest);
    }
    if (!(highest + std::log(sum) > text)) return;
    const auto is_text = [&](const auto& item) { return item.second < times_.first; };
    scores.erase(std::remove_if(scores.begin(), scores.end(), is_text), scores.end());
  }

 private:
  Times times_;
  int64_t least_, most_, from_;  // the first and the last time, and the first token of text
};

}  // namespace xformc
