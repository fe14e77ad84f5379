#include "token_stream.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "edits.h"
#include "failure.h"
#include "texts.h"
#include "unicode.h"

namespace xformc {
namespace {

// The values of a stream, which docs/adr/0035 describes. Those that replace an input have the suffix.
constexpr const char *AT = "step/at", *POSITIONS = "step/positions", *DONE = "step/done",
                     *SCORES_NEXT = "step/scores_next";
constexpr std::string_view NEXT = "_next";

// The text without what its end may still become: the bytes of a character of which the rest is to come, and a space,
// which a token may remove.
std::string_view settled(std::string_view text) {
  constexpr std::string_view UNFINISHED = "\xef\xbf\xbd";
  while (!text.empty()) {
    const size_t size = text.back() == ' ' ? 1 : text.size() >= 3 && text.substr(text.size() - 3) == UNFINISHED ? 3 : 0;
    if (size == 0) break;
    text.remove_suffix(size);
  }
  return text;
}

// The rest of a text after so many characters, and the number of those that it has in all.
std::pair<std::string_view, size_t> after(std::string_view text, size_t characters) {
  size_t at = 0, count = 0, begin = text.size();
  while (at < text.size()) {
    if (count == characters) begin = at;
    if (next_character(text, at) == NO_CHARACTER) ++at;
    ++count;
  }
  return {text.substr(begin), count};
}

bool has_ended(const Values& values) {
  const bool done = values.at(DONE).truths({1})[0] != 0;
  return done || values.at(AT).integer() >= values.at(POSITIONS).integer();
}

// Takes over the values that replace inputs.
void advance(Values& values, Values&& found) {
  for (auto& [name, value] : found) {
    if (name.size() <= NEXT.size() || name.compare(name.size() - NEXT.size(), NEXT.size(), NEXT) != 0) continue;
    const std::string replaced = name.substr(0, name.size() - NEXT.size());
    values.erase(replaced);
    values.emplace(replaced, std::move(value));
  }
}

// A number of tokens to sample that leaves the last position to a call of its own: its caches end there.
int64_t within(const Values& values, int64_t at_once) {
  const int64_t left = values.at(POSITIONS).integer() - values.at(AT).integer();
  return std::max<int64_t>(1, std::min(at_once, left - 1));
}

// The number of tokens up to the one that completes a stop string, of which those after `before` are new, if one does.
std::optional<size_t> stop_size(const Stops& stops, const Vocabulary& vocabulary, const Ids& prompt, const Ids& tokens,
                                size_t before) {
  if (stops.empty()) return std::nullopt;
  for (size_t size = before + 1; size <= tokens.size(); ++size) {
    const Ids some(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(size));
    if (stops.found(added_text(vocabulary, prompt, some))) return size;
  }
  return std::nullopt;
}

// Takes the tokens and the score of a call that was to write `most` of them.
void take_tokens(const Values& found, int64_t most, int64_t vocabulary, const std::string& place, Hypothesis& so_far) {
  std::vector<int64_t> shape, one;
  const int64_t* tokens = found.at("tokens").integers({Size::up_to(most), 1}, shape, vocabulary);
  so_far.score = *found.at(SCORES_NEXT).floats({1}, one);
  if (shape[0] == 0) {
    throw Failure(XFORMC_RUN_FAILED, "the output tokens is empty, and the text has not ended", place, REBUILD);
  }
  so_far.tokens.insert(so_far.tokens.end(), tokens, tokens + shape[0]);
}

}  // namespace

void require_streams(const Manifest& manifest) {
  if (manifest.streams()) return;
  throw invalid_argument(manifest.name + " has no streams of tokens", "", BUILD_FOR_CPUS);
}

Hypothesis stream_tokens(const Model& model, const Stopper& stopper, const Input& written, const Vocabulary& vocabulary,
                         const Row& prompt, const SampleOptions& options, int64_t at_once, const TakePiece& take) {
  const Ids& given = prompt.fields[0].ids;
  const Stops& stops = options.stops;
  Hypothesis so_far{"", 0, {}};
  size_t shown = 0;
  const auto grow = [&](bool last) {
    so_far.text = stops.cut(added_text(vocabulary, given, so_far.tokens));
    const auto [piece, count] = after(last ? so_far.text : stops.settled(settled(so_far.text)), shown);
    shown = std::max(shown, count);
    if (!piece.empty()) take(std::string(piece), so_far);
  };
  Batch first, rest;
  first.add("prompt", given, {1, static_cast<int64_t>(given.size())});
  first.add("max_new_tokens", std::vector<int64_t>{options.max_new_tokens}, {});
  add_sampling(rest, options, {prompt.seed});
  add_edits(rest, options.edits);
  rest.add("count", std::vector<int64_t>{at_once}, {});
  int64_t& count_of_call = rest.integers.back().front();
  Values values = model.prompt->run(first.feeds, {}, stopper);
  // The results of one call, whose tokens follow those so far.
  const auto sample = [&](int64_t count) {
    count_of_call = count;
    Values found = model.following->run(rest.feeds, values, stopper);
    const int64_t left = options.max_new_tokens - static_cast<int64_t>(so_far.tokens.size());
    take_tokens(found, std::min(count, left), written.vocabulary, model.following->place(), so_far);
    return found;
  };
  bool stopped = false;
  while (!stopped && !has_ended(values)) {
    if (stopper.stopped()) throw cancelled();
    const size_t before = so_far.tokens.size();
    Values found = sample(stops.empty() ? at_once : within(values, at_once));
    if (const auto size = stop_size(stops, vocabulary, given, so_far.tokens, before)) {
      stopped = true;
      if (*size < so_far.tokens.size()) {  // from the values before this call, those tokens alone
        so_far.tokens.resize(before);
        found = sample(static_cast<int64_t>(*size - before));
      }
    }
    advance(values, std::move(found));
    grow(false);
  }
  grow(true);
  return so_far;
}

}  // namespace xformc
