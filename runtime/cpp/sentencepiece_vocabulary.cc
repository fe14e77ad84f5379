#include "sentencepiece_vocabulary.h"

#include <sentencepiece_model.pb.h>
#include <sentencepiece_processor.h>

#include <algorithm>

#include "failure.h"
#include "numbers.h"
#include "tokenizer_model.h"

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

// The tokens of a text: ids or pieces.
template <typename Token>
std::vector<Token> encoded(const sentencepiece::SentencePieceProcessor& processor, std::string_view text) {
  std::vector<Token> tokens;
  const auto status = processor.Encode({text.data(), text.size()}, &tokens);
  if (status.ok()) return tokens;
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
  if (found == wanted || (!special.usual() && foreign)) return;
  throw invalid_engine("has the special tokens " + listed(found) + " (pad, unknown, begin, end), not " + listed(wanted),
                       path.string(), RETRAIN);
}

}  // namespace

SentencePieceVocabulary::SentencePieceVocabulary(const std::filesystem::path& path, int64_t size, SpecialTokens special)
    : Vocabulary(std::move(special)), processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  load_model(*processor_, path);
  size_ = processor_->GetPieceSize();
  if (size_ > size) {
    throw invalid_engine("has " + grouped(size_) + " pieces; the engine's vocabulary " + grouped(size), path.string(),
                         RETRAIN);
  }
  check_special(*processor_, special_, path);
}

SentencePieceVocabulary::~SentencePieceVocabulary() = default;

Ids SentencePieceVocabulary::encode_open(std::string_view text) const {
  const auto [tag, rest] = tagged(text);
  const std::vector<int> found = encoded<int>(*processor_, rest);
  Ids ids;
  if (tag) ids.push_back(*tag);
  ids.insert(ids.end(), found.begin(), found.end());
  return ids;
}

std::pair<std::optional<int>, std::string_view> SentencePieceVocabulary::tagged(std::string_view text) const {
  const std::string_view word = text.substr(0, text.find(' '));
  const std::string piece = std::string(SPACE).append(word);
  const int id = processor_->PieceToId(piece);
  if (!processor_->IsControl(id) || processor_->IdToPiece(id) != piece) return {std::nullopt, text};
  return {id, text.substr(std::min(word.size() + 1, text.size()))};
}

std::string SentencePieceVocabulary::piece(int64_t id) const {
  return id >= 0 && id < size_ ? processor_->IdToPiece(static_cast<int>(id)) : "";
}

Spelled SentencePieceVocabulary::spelled(std::string_view text) const {
  const auto [tag, rest] = tagged(text);
  std::vector<std::string> pieces = encoded<std::string>(*processor_, rest);
  if (tag) pieces.insert(pieces.begin(), processor_->IdToPiece(*tag));
  Spelled found;
  for (std::string& piece : pieces) {
    for (size_t at = 0; (at = piece.find(SPACE, at)) != std::string::npos; ++at) piece.replace(at, SPACE.size(), " ");
    found.spans.emplace_back(found.text.size(), found.text.size() + piece.size());
    found.text += piece;
  }
  return found;
}

std::string SentencePieceVocabulary::text_of(const Ids& ids) const {
  std::vector<int> known;
  for (const int64_t id : ids) {
    if (id >= 0 && id < size_) known.push_back(static_cast<int>(id));
  }
  std::string text = processor_->DecodeIds(known);
  const bool trails = processor_->model_proto().trainer_spec().treat_whitespace_as_suffix();  // spaces end words
  if (trails && !text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

}  // namespace xformc
