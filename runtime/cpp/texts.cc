#include "texts.h"

#include <algorithm>

#include "failure.h"
#include "numbers.h"
#include "unicode.h"
#include "wav.h"

namespace xformc {
namespace {

constexpr int64_t WHOLE_SHARE = 4;

// 1/share of a batch, at least that of a default batch, so that small batches reject no text.
Limit batch_limit(int64_t max_batch_tokens, int64_t share) {
  return {std::max(MAX_BATCH_TOKENS, max_batch_tokens) / share, share};
}

}  // namespace

Failure too_long(const std::string& place, int64_t count, Limit limit) {
  std::string hint = "split it into shorter texts, or cut it with truncate";
  if (limit.share > 0) {
    hint += "; with enough memory, max_batch_tokens=" + std::to_string(count * limit.share) + " allows it";
  }
  return invalid_argument(grouped(count) + " tokens; this engine takes at most " + grouped(limit.tokens), place, hint);
}

void warn_of_cut(const std::string& place, int64_t count, Limit limit, const Log& log) {
  log.warning(place + ": cut from " + std::to_string(count) + " to " + std::to_string(limit.tokens) + " tokens");
}

Limit whole_limit(std::optional<int64_t> longest, int64_t max_batch_tokens) {
  return longest ? Limit{*longest, 0} : batch_limit(max_batch_tokens, WHOLE_SHARE);
}

Limit prompt_limit(std::optional<int64_t> longest, int64_t max_batch_tokens) {
  return longest ? Limit{*longest - 1, 0} : batch_limit(max_batch_tokens, 1);
}

Limit scored_limit(std::optional<int64_t> longest, int64_t max_batch_tokens) {
  return longest ? Limit{*longest, 0} : batch_limit(max_batch_tokens, 1);
}

std::string added_text(const Vocabulary& vocabulary, const Ids& prompt, const Ids& tokens) {
  Ids all = prompt;
  all.insert(all.end(), tokens.begin(), tokens.end());
  const std::string before = vocabulary.decode(prompt), whole = vocabulary.decode(all);
  if (whole.compare(0, before.size(), before) == 0) return whole.substr(before.size());
  return vocabulary.decode(tokens);
}

std::string_view valid_text(const xformc_text& text, const std::string& place) {
  if (text.data == nullptr && text.size > 0) throw invalid_argument("the text is NULL", place);
  const std::string_view given(text.size > 0 ? text.data : "", text.size);
  if (!is_utf8(given)) throw invalid_argument("not valid Unicode text", place);
  return given;
}

Ids encode_line(size_t line, const xformc_text& text, const std::function<Ids(std::string_view)>& encode, Limit limit,
                bool truncate, size_t tail, const Log& log) {
  const std::string place = "line " + std::to_string(line);
  Ids ids = encode(valid_text(text, place));
  const auto count = static_cast<int64_t>(ids.size());
  if (count <= limit.tokens) return ids;
  if (!truncate) throw too_long(place, count, limit);
  warn_of_cut(place, count, limit, log);
  ids.erase(ids.begin() + (limit.tokens - static_cast<int64_t>(tail)), ids.end() - static_cast<int64_t>(tail));
  return ids;
}

ExampleReader::ExampleReader(const Manifest& manifest, const Tokenizer& tokenizer, const Log& log,
                             const Batching& batching)
    : inputs_(manifest.given), words_(manifest.labels_words()),
      aligned_(std::any_of(inputs_.begin(), inputs_.end(), [](const Input& input) { return !input.of.empty(); })),
      tokenizer_(tokenizer), log_(log), batching_(batching) {}

Row ExampleReader::encode(size_t line, const xformc_text* texts) const {
  Row row;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    row.fields.push_back(inputs_[i].rate > 0 ? sound(line, inputs_[i], texts[i]) : tokens(line, inputs_[i], texts[i]));
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].of.empty()) check_along(line, i, row);
  }
  return row;
}

Field ExampleReader::tokens(size_t line, const Input& input, const xformc_text& text) const {
  const Vocabulary& vocabulary = *tokenizer_.at(input.name);
  const auto reads = [&](std::string_view given) {
    if (!words_ && !aligned_) return vocabulary.encode(given);
    Ids ids = vocabulary.encode_words(given);
    const Ids after = words_ ? Ids{} : input.special.after();
    ids.insert(ids.end(), after.begin(), after.end());
    return ids;
  };
  const Limit limit = whole_limit(input.longest, batching_.max_batch_tokens);
  Ids ids = encode_line(line, text, reads, limit, batching_.truncate, tail(input), log_);
  const auto count = static_cast<int64_t>(ids.size());
  return {std::move(ids), {}, count};
}

size_t ExampleReader::tail(const Input& input) const { return words_ ? 0 : input.special.after().size(); }

Field ExampleReader::sound(size_t line, const Input& input, const xformc_text& path) const {
  const std::string place = "line " + std::to_string(line);
  if (path.data == nullptr) throw invalid_argument("the text is NULL", place);
  const std::string name(path.data, path.size);
  if (name.find('\0') != std::string::npos) throw invalid_argument("not the name of a file: embedded null byte", place);
  const int64_t hop = input.axes[0].second;
  Field field;
  field.numbers = read_wav(name, input.name, input.rate, hop);
  field.positions = static_cast<int64_t>(field.numbers.size()) / hop;
  if (!input.longest || field.positions <= *input.longest) return field;
  throw invalid_argument(grouped(field.positions) + " positions; this engine takes at most " + grouped(*input.longest),
                         name, "cut it into shorter files");
}

void ExampleReader::check_along(size_t line, size_t index, const Row& row) const {
  const Input& input = inputs_[index];
  const auto of = std::find_if(inputs_.begin(), inputs_.end(), [&](const Input& one) { return one.name == input.of; });
  if (of == inputs_.end()) return;
  const int64_t found = row.fields[index].positions - static_cast<int64_t>(tail(input));
  const int64_t wanted = row.fields[of - inputs_.begin()].positions - static_cast<int64_t>(tail(*of));
  if (found == wanted) return;
  throw invalid_argument("found " + std::to_string(found) + " words of " + input.name + " for " +
                             std::to_string(wanted) + " of " + input.of,
                         "line " + std::to_string(line),
                         "write one word of " + input.name + " for each word of " + input.of);
}

}  // namespace xformc
