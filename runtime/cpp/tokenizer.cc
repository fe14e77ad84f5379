#include "tokenizer.h"

#include <sentencepiece_model.pb.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <iterator>

#include "failure.h"
#include "numbers.h"
#include "tokenizer_model.h"
#include "unicode.h"

namespace xformc {
namespace {

// Loads the model of a file. SentencePiece also throws exceptions of a library of its own.
void load_model(sentencepiece::SentencePieceProcessor& processor, const std::filesystem::path& path) {
  auto model = read_tokenizer_model(path);
  std::string reason;
  try {
    if (processor.Load(std::move(model)).ok()) return;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    reason = std::string(": ") + error.what();
  }
  throw invalid_engine("not a SentencePiece model" + reason, path.string(), RETRAIN);
}

std::vector<int> encoded(const sentencepiece::SentencePieceProcessor& processor, std::string_view text) {
  std::vector<int> ids;
  const auto status = processor.Encode({text.data(), text.size()}, &ids);
  if (status.ok()) return ids;
  throw Failure(XFORMC_RUN_FAILED, std::string("SentencePiece cannot encode this text: ") + status.message());
}

}  // namespace

Vocabulary::Vocabulary(const std::filesystem::path& path, int64_t size)
    : processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  load_model(*processor_, path);
  size_ = processor_->GetPieceSize();
  if (size_ > size) {
    throw invalid_engine("has " + grouped(size_) + " pieces; the engine's vocabulary " + grouped(size), path.string(),
                         RETRAIN);
  }
  const int64_t ids[] = {processor_->pad_id(), processor_->unk_id(), processor_->bos_id(), processor_->eos_id()};
  constexpr int64_t SPECIAL[] = {PAD, UNKNOWN, BEGIN, END};
  if (!std::equal(std::begin(ids), std::end(ids), SPECIAL)) {
    std::vector<std::string> found;
    for (const int64_t id : ids) found.push_back(std::to_string(id));
    throw invalid_engine("has the special tokens [" + joined(found) + "] (pad, unknown, begin, end), not [0, 1, 2, 3]",
                         path.string(), RETRAIN);
  }
}

Vocabulary::~Vocabulary() = default;

Ids Vocabulary::encode(std::string_view text) const {
  const std::vector<int> found = encoded(*processor_, text);
  Ids ids(found.begin(), found.end());
  ids.push_back(END);
  return ids;
}

Ids Vocabulary::encode_words(std::string_view text) const {
  Ids ids;
  for (const std::string_view word : split_words(text)) {
    const std::vector<int> found = encoded(*processor_, word);
    ids.push_back(found.size() == 1 ? found[0] : UNKNOWN);
  }
  return ids;
}

std::string Vocabulary::decode(const Ids& ids) const {
  std::vector<int> known;
  for (const int64_t id : ids) {
    if (id > END && id < size_) known.push_back(static_cast<int>(id));
  }
  const std::string text = processor_->DecodeIds(known);
  if (std::find(ids.begin(), ids.end(), UNKNOWN) == ids.end()) return text;
  std::string joined;
  for (const std::string_view word : split_words(text)) joined.append(joined.empty() ? "" : " ").append(word);
  return joined;
}

Tokenizer load_tokenizer(const std::filesystem::path& folder, const Manifest& manifest) {
  std::map<std::pair<std::string, int64_t>, std::shared_ptr<const Vocabulary>> loaded;
  Tokenizer tokenizer;
  const auto load = [&](const std::string& name, const std::string& file, int64_t size) {
    if (file.empty()) return;
    auto& vocabulary = loaded[{file, size}];
    if (!vocabulary) vocabulary = std::make_shared<const Vocabulary>(folder / file, size);
    tokenizer[name] = vocabulary;
  };
  for (const DeclaredResult& result : manifest.results) load(result.name, result.tokenizer, result.width());
  for (const Input& input : manifest.inputs) load(input.name, input.tokenizer, input.vocabulary);
  return tokenizer;
}

}  // namespace xformc
