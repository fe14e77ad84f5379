#include "tokenizer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "json_vocabulary.h"
#include "sentencepiece_vocabulary.h"

namespace xformc {
namespace {

// The file of a vocabulary, and what it must fit.
struct Key {
  std::string file;
  int64_t size;
  SpecialTokens special;

  bool operator==(const Key& other) const {
    return file == other.file && size == other.size && special == other.special;
  }
};

struct Opened {
  Key key;
  std::shared_ptr<const Vocabulary> vocabulary;  // null: the library lacks something of it
  std::string lacking;
};

Opened open(const std::filesystem::path& folder, const Key& key) {
  const std::filesystem::path path = folder / key.file;
  if (path.extension() != ".json") {
    return {key, std::make_shared<const SentencePieceVocabulary>(path, key.size, key.special), ""};
  }
  try {
    return {key, std::make_shared<const JsonVocabulary>(path, key.size, key.special), ""};
  } catch (const Unsupported& unsupported) {
    return {key, nullptr, unsupported.what};
  }
}

}  // namespace

Tokenizer load_tokenizer(const std::filesystem::path& folder, const Manifest& manifest, Lacking& lacking) {
  std::vector<Opened> all;
  Tokenizer tokenizer;
  const auto load = [&](const std::string& name, Key key) {
    if (key.file.empty()) return;
    auto found = std::find_if(all.begin(), all.end(), [&](const Opened& one) { return one.key == key; });
    if (found == all.end()) found = all.insert(all.end(), open(folder, key));
    if (found->vocabulary == nullptr) {
      lacking[name] = found->lacking;
    } else {
      tokenizer[name] = found->vocabulary;
    }
  };
  for (const DeclaredResult& result : manifest.results) load(result.name, {result.tokenizer, result.width(), {}});
  for (const Input& input : manifest.inputs) load(input.name, {input.tokenizer, input.vocabulary, input.special});
  return tokenizer;
}

}  // namespace xformc
