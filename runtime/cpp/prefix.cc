#include "prefix.h"

#include "failure.h"
#include "numbers.h"
#include "texts.h"

namespace xformc {
namespace {

Ids encoded(const xformc_text& text, const std::string& place, bool whole, const Input& written,
            const Vocabulary& vocabulary) {
  const std::string_view given = valid_text(text, place);
  Ids ids = whole ? vocabulary.encode(given) : vocabulary.encode_open(given);
  const int64_t count = static_cast<int64_t>(ids.size());
  const int64_t most = scored_limit(written.longest, MAX_BATCH_TOKENS).tokens;
  if (count > most) {
    throw invalid_argument(std::string("the ") + (whole ? "text" : "prefix") + " has " + grouped(count) +
                               " tokens; this engine " + (written.longest ? "writes" : "takes") + " at most " +
                               grouped(most),
                           place);
  }
  return ids;
}

}  // namespace

std::vector<Ids> encode_prefixes(const xformc_search_options& given, const Manifest& manifest,
                                 const Tokenizer& tokenizer) {
  if (given.prefixes == nullptr) return {};
  if (!manifest.takes_prefix) {
    throw invalid_argument("the texts of " + manifest.name + " cannot begin with given tokens", "", BUILD_FOR_CPUS);
  }
  const Input& written = manifest.written();
  const auto vocabulary = tokenizer.find(written.name);
  std::vector<Ids> prefixes;
  for (size_t i = 0; i < given.prefix_count; ++i) {
    const std::string place = "line " + std::to_string(i + 1);
    if (vocabulary == tokenizer.end()) throw invalid_argument("the engine has no tokenizer for its text", place);
    prefixes.push_back(encoded(given.prefixes[i], place, given.whole_texts, written, *vocabulary->second));
  }
  return prefixes;
}

}  // namespace xformc
