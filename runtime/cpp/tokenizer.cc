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

constexpr std::string_view SPACE = "\u2581";  // as pieces have it

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

std::string listed(const Ids& ids) {
  std::vector<std::string> words;
  for (const int64_t id : ids) words.push_back(std::to_string(id));
  return "[" + joined(words) + "]";
}

// Checks that the model's special tokens are those of the engine. A foreign model may lack padding and the end token,
// and what it begins texts with does not matter: the engine's begin token is what its decoder reads first.
void check_special(const sentencepiece::SentencePieceProcessor& processor, const SpecialTokens& special,
                   const std::filesystem::path& path) {
  const int64_t pad = processor.pad_id(), unknown = processor.unk_id(), end = processor.eos_id();
  const Ids found = {pad, unknown, processor.bos_id(), end};
  Ids wanted = {special.pad.value_or(-1), special.unknown.value_or(-1), special.begin.value_or(-1)};
  wanted.insert(wanted.end(), special.end.begin(), special.end.end());
  const bool ends = end == -1 || std::find(special.end.begin(), special.end.end(), end) != special.end.end();
  const bool foreign = (pad == -1 || pad == special.pad) && unknown == special.unknown && ends;
  if (found == wanted || (!(special == SpecialTokens{}) && foreign)) return;
  throw invalid_engine("has the special tokens " + listed(found) + " (pad, unknown, begin, end), not " + listed(wanted),
                       path.string(), RETRAIN);
}

}  // namespace

Vocabulary::Vocabulary(const std::filesystem::path& path, int64_t size, SpecialTokens special)
    : processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()), special_(std::move(special)) {
  load_model(*processor_, path);
  size_ = processor_->GetPieceSize();
  if (size_ > size) {
    throw invalid_engine("has " + grouped(size_) + " pieces; the engine's vocabulary " + grouped(size), path.string(),
                         RETRAIN);
  }
  check_special(*processor_, special_, path);
}

Vocabulary::~Vocabulary() = default;

Ids Vocabulary::encode(std::string_view text) const {
  Ids ids = encode_open(text);
  ids.push_back(special_.last());
  return ids;
}

Ids Vocabulary::encode_open(std::string_view text) const {
  const auto [tag, rest] = tagged(text);
  const std::vector<int> found = encoded(*processor_, rest);
  Ids ids;
  if (tag) ids.push_back(*tag);
  ids.insert(ids.end(), found.begin(), found.end());
  return ids;
}

std::pair<std::optional<int>, std::string_view> Vocabulary::tagged(std::string_view text) const {
  const std::string_view word = text.substr(0, text.find(' '));
  const std::string piece = std::string(SPACE).append(word);
  const int id = processor_->PieceToId(piece);
  if (!processor_->IsControl(id) || processor_->IdToPiece(id) != piece) return {std::nullopt, text};
  return {id, text.substr(std::min(word.size() + 1, text.size()))};
}

Ids Vocabulary::encode_words(std::string_view text) const {
  Ids ids;
  for (const std::string_view word : split_words(text)) {
    const std::vector<int> found = encoded(*processor_, word);
    ids.push_back(found.size() == 1 ? found[0] : special_.unknown.value_or(0));
  }
  return ids;
}

std::string Vocabulary::piece(int64_t id) const {
  return id >= 0 && id < size_ ? processor_->IdToPiece(static_cast<int>(id)) : "";
}

std::vector<std::string> Vocabulary::spelled(std::string_view text) const {
  std::vector<std::string> pieces;
  const auto [tag, rest] = tagged(text);
  const auto status = processor_->Encode({rest.data(), rest.size()}, &pieces);
  if (!status.ok()) {
    throw Failure(XFORMC_RUN_FAILED, std::string("SentencePiece cannot encode this text: ") + status.message());
  }
  if (tag) pieces.insert(pieces.begin(), processor_->IdToPiece(*tag));
  for (std::string& piece : pieces) {
    for (size_t at = 0; (at = piece.find(SPACE, at)) != std::string::npos; ++at) piece.replace(at, SPACE.size(), " ");
  }
  return pieces;
}

std::string Vocabulary::decode(const Ids& ids) const {
  std::vector<int> known;
  for (const int64_t id : ids) {
    if (id >= 0 && id < size_ && !special_.has(id)) known.push_back(static_cast<int>(id));
  }
  std::string text = processor_->DecodeIds(known);
  const bool trails = processor_->model_proto().trainer_spec().treat_whitespace_as_suffix();  // spaces end words
  if (trails && !text.empty() && text.back() == ' ') text.pop_back();
  if (std::none_of(ids.begin(), ids.end(), [this](int64_t id) { return id == special_.unknown; })) return text;
  std::string joined;
  for (const std::string_view word : split_words(text)) joined.append(joined.empty() ? "" : " ").append(word);
  return joined;
}

bool is_readable(const std::string& file) {
  return !file.empty() && std::filesystem::path(file).extension() != ".json";
}

Tokenizer load_tokenizer(const std::filesystem::path& folder, const Manifest& manifest) {
  struct Key {
    std::string file;
    int64_t size;
    SpecialTokens special;
  };
  std::vector<std::pair<Key, std::shared_ptr<const Vocabulary>>> loaded;
  Tokenizer tokenizer;
  const auto load = [&](const std::string& name, const std::string& file, int64_t size, const SpecialTokens& special) {
    if (!is_readable(file)) return;
    for (const auto& [key, vocabulary] : loaded) {
      if (key.file == file && key.size == size && key.special == special) {
        tokenizer[name] = vocabulary;
        return;
      }
    }
    tokenizer[name] = std::make_shared<const Vocabulary>(folder / file, size, special);
    loaded.push_back({{file, size, special}, tokenizer[name]});
  };
  for (const DeclaredResult& result : manifest.results) load(result.name, result.tokenizer, result.width(), {});
  for (const Input& input : manifest.inputs) load(input.name, input.tokenizer, input.vocabulary, input.special);
  return tokenizer;
}

}  // namespace xformc
