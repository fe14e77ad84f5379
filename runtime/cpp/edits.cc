#include "edits.h"

#include <algorithm>

#include "failure.h"
#include "numbers.h"
#include "options.h"
#include "unicode.h"

namespace xformc {
namespace {

// An edit that is a number from low to high.
struct Penalty {
  const char* name;
  double low, absent;
  double GivenEdits::* given;
  std::optional<double> Edits::* edit;
};

constexpr Penalty PENALTIES[] = {
    {"repetition_penalty", MIN_REPETITION, 1, &GivenEdits::repetition_penalty, &Edits::repetition_penalty},
    {"presence_penalty", -MAX_PENALTY, 0, &GivenEdits::presence_penalty, &Edits::presence_penalty},
    {"frequency_penalty", -MAX_PENALTY, 0, &GivenEdits::frequency_penalty, &Edits::frequency_penalty},
};
constexpr const char *SUPPRESS = "suppress_tokens", *NGRAM = "no_repeat_ngram_size";

[[noreturn]] void lacks(const Manifest& manifest, const std::string& name) {
  const char* what = manifest.decoding() == Decoding::sample ? "sampling" : "search";
  throw invalid_argument(std::string("the ") + what + " of " + manifest.name + " has no " + name, "", BUILD_FOR_CPUS);
}

// The first token of the vocabulary with this piece.
int64_t id_of(std::string_view piece, const Vocabulary& vocabulary, int64_t size) {
  if (!is_utf8(piece)) throw invalid_argument(std::string(SUPPRESS) + ": a piece is not valid Unicode text");
  const std::string word = "\u2581" + std::string(piece);
  bool begins_a_word = false;
  for (int64_t id = 0; id < size && !piece.empty(); ++id) {
    const std::string found = vocabulary.piece(id);
    if (found == piece) return id;
    begins_a_word = begins_a_word || found == word;
  }
  throw invalid_argument(
      std::string(SUPPRESS) + ": the vocabulary has no token '" + std::string(piece) + "'", "",
      begins_a_word ? "the vocabulary has '" + word + "', which begins a word" : "`xformc inspect` shows a tokenizer");
}

Ids tokens_of(const GivenEdits& given, const Manifest& manifest, const Tokenizer& tokenizer) {
  const Input& written = manifest.written();
  const auto vocabulary = tokenizer.find(written.name);
  Ids found;
  for (size_t i = 0; i < given.suppress_count; ++i) {
    const xformc_token& token = given.suppress_tokens[i];
    if (token.piece.data == nullptr && (token.id < 0 || token.id >= written.vocabulary)) {
      throw invalid_argument(std::string(SUPPRESS) + " must be ids from 0 to " +
                             std::to_string(written.vocabulary - 1) + " or pieces of the vocabulary, not " +
                             std::to_string(token.id));
    }
    if (token.piece.data != nullptr && vocabulary == tokenizer.end()) {
      throw invalid_argument(std::string("the engine has no tokenizer for its text, so ") + SUPPRESS + " must be ids");
    }
    const int64_t id = token.piece.data == nullptr
                           ? token.id
                           : id_of({token.piece.data, token.piece.size}, *vocabulary->second, written.vocabulary);
    if (std::find(found.begin(), found.end(), id) == found.end()) found.push_back(id);
  }
  return found;
}

void check_suppressed(const Ids& tokens, const Manifest& manifest, int64_t rest) {
  const int64_t size = manifest.written().vocabulary, count = static_cast<int64_t>(tokens.size());
  const int64_t largest = tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
  if (largest >= size) {
    throw invalid_argument(std::string(SUPPRESS) + " must be ids from 0 to " + std::to_string(size - 1) + ", not " +
                           std::to_string(largest));
  }
  if (count <= std::max<int64_t>(0, size - rest)) return;
  throw invalid_argument(std::string(SUPPRESS) + " has " + grouped(count) + " of the " + grouped(size) +
                         " tokens of the vocabulary; at least " + std::to_string(rest) + " must be left");
}

}  // namespace

Edits read_edits(const Document& document) {
  Edits edits;
  if (document.has(SUPPRESS)) edits.suppress_tokens = document.ids(SUPPRESS, MAX_SUPPRESSED, MAX_SIZE, 0);
  if (document.has(NGRAM)) edits.no_repeat_ngram_size = document.integer(NGRAM, 0, MAX_OFFSET);
  for (const Penalty& one : PENALTIES) {
    if (document.has(one.name)) edits.*one.edit = document.number(one.name, one.low, MAX_PENALTY);
  }
  return edits;
}

Edits resolve_edits(const GivenEdits& given, const Edits& unset, const Manifest& manifest, const Tokenizer& tokenizer,
                    int64_t rest) {
  Edits edits = unset;
  if (given.suppress_tokens != nullptr) {
    Ids tokens = tokens_of(given, manifest, tokenizer);
    if (!unset.suppress_tokens && !tokens.empty()) lacks(manifest, SUPPRESS);
    if (unset.suppress_tokens) edits.suppress_tokens = std::move(tokens);
  }
  const int64_t size =
      checked(NGRAM, given.no_repeat_ngram_size, unset.no_repeat_ngram_size.value_or(0), 0, MAX_OFFSET);
  if (!unset.no_repeat_ngram_size && size != 0) lacks(manifest, NGRAM);
  if (unset.no_repeat_ngram_size) edits.no_repeat_ngram_size = size;
  for (const Penalty& one : PENALTIES) {
    const std::optional<double>& there = unset.*one.edit;
    const double value = checked(one.name, given.*one.given, there.value_or(one.absent), one.low, MAX_PENALTY);
    if (!there && value != one.absent) lacks(manifest, one.name);
    if (there) edits.*one.edit = value;
  }
  check_suppressed(edits.suppress_tokens.value_or(Ids()), manifest, rest);
  return edits;
}

void add_edits(Batch& batch, const Edits& edits) {
  if (edits.suppress_tokens) {
    batch.add(SUPPRESS, *edits.suppress_tokens, {static_cast<int64_t>(edits.suppress_tokens->size())});
  }
  if (edits.no_repeat_ngram_size) batch.add(NGRAM, std::vector<int64_t>{*edits.no_repeat_ngram_size}, {});
  for (const Penalty& one : PENALTIES) {
    const std::optional<double>& value = edits.*one.edit;
    if (value) batch.add(one.name, std::vector<float>{static_cast<float>(*value)}, {});
  }
}

}  // namespace xformc
