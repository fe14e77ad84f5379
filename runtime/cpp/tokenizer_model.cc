#include "tokenizer_model.h"

#include <sentencepiece_model.pb.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "failure.h"
#include "numbers.h"
#include "unicode.h"

namespace xformc {
namespace {

constexpr int64_t TOKENIZER_BYTES = 1 << 28;
constexpr size_t CHARSMAP_BYTES = 1 << 22;
constexpr size_t PIECE_BYTES = 1'000;  // SentencePiece recurses into pieces, and stores 1,024 that begin at one place
constexpr size_t NESTED_SYMBOLS = 64;  // user-defined symbols of which each begins the next
constexpr size_t NESTED_RULES = 32;    // keys of a charsmap of which each begins the next
constexpr int KEY_BYTES = 64;
constexpr size_t REPLACEMENT_BYTES = 256;  // which bounds the memory that a text takes

using Spec = sentencepiece::NormalizerSpec;
using Piece = sentencepiece::ModelProto::SentencePiece;

// A unit of the double array in which Darts-clone stores a trie.
struct Unit {
  uint32_t bits;

  bool is_value() const { return bits >> 31 != 0; }
  bool has_value() const { return (bits >> 8 & 1) != 0; }
  uint32_t label() const { return bits & 0xff; }
  uint32_t offset() const { return (bits >> 10) << ((bits & 0x200) >> 6); }
};

// A trie is a list of units, and node 0 its root. The child of node n by a byte is (n ^ its offset) ^ byte, if that has
// the byte as its label.
class Trie {
 public:
  explicit Trie(std::string_view bytes) : units_(bytes.size() / sizeof(Unit)) {
    std::memcpy(static_cast<void*>(units_.data()), bytes.data(), units_.size() * sizeof(Unit));
  }

  // Whether no text leads out of the array; its size is a multiple of 256, so a byte changes nothing.
  bool is_closed() const {
    for (size_t i = 0; i < units_.size(); ++i) {
      const bool is_node = i == 0 || !units_[i].is_value();
      if (is_node && children(i) >= units_.size()) return false;
    }
    return true;
  }

  // Whether every key has at most KEY_BYTES bytes, and at most NESTED_RULES beginnings that are keys as well.
  bool is_shallow() const {
    std::multimap<size_t, size_t> nodes;
    for (size_t i = 1; i < units_.size(); ++i) {
      if (!units_[i].is_value()) nodes.emplace(i ^ units_[i].label(), i);
    }
    std::map<size_t, size_t> level = {{0, 0}};  // the nodes after some bytes, with the keys before them
    for (int depth = 0; depth <= KEY_BYTES; ++depth) {
      std::map<size_t, size_t> next;
      for (const auto& [node, keys] : level) {
        const auto [first, last] = nodes.equal_range(children(node));
        for (auto child = first; child != last; ++child) {
          size_t& most = next[child->second];
          most = std::max(most, keys + (units_[child->second].has_value() ? 1 : 0));
          if (most > NESTED_RULES) return false;
        }
      }
      if (next.empty()) return true;
      level.swap(next);
    }
    return false;
  }

 private:
  size_t children(size_t node) const { return node ^ units_[node].offset(); }

  std::vector<Unit> units_;
};

// A charsmap is the size of a trie in 4 bytes, the trie, and the replacements, each of which ends in NUL.
bool is_charsmap(std::string_view bytes) {
  uint32_t size = 0;
  if (bytes.size() > CHARSMAP_BYTES || bytes.size() <= sizeof size) return false;
  std::memcpy(&size, bytes.data(), sizeof size);
  bytes.remove_prefix(sizeof size);
  if (size < 1024 || size % 1024 != 0 || size >= bytes.size()) return false;
  const Trie trie(bytes.substr(0, size));
  bytes.remove_prefix(size);
  if (bytes.back() != '\0' || !is_utf8(bytes)) return false;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\0');
    if (end > REPLACEMENT_BYTES) return false;
    bytes.remove_prefix(end + 1);
  }
  return trie.is_closed() && trie.is_shallow();
}

bool is_nested_too_deeply(std::vector<std::string_view> symbols) {
  std::sort(symbols.begin(), symbols.end());
  std::vector<std::string_view> open;  // those that begin the last one, and itself
  for (const std::string_view symbol : symbols) {
    while (!open.empty() && symbol.substr(0, open.back().size()) != open.back()) open.pop_back();
    open.push_back(symbol);
    if (open.size() > NESTED_SYMBOLS) return true;
  }
  return false;
}

// What is wrong with a model; "" for nothing.
std::string problem_of(const sentencepiece::ModelProto& model) {
  std::vector<std::string_view> symbols;
  for (const Piece& piece : model.pieces()) {
    if (piece.piece().size() > PIECE_BYTES) return "a piece of " + grouped(piece.piece().size()) + " bytes";
    if (!is_utf8(piece.piece()) || piece.piece().find('\0') != std::string::npos) return "a piece that is not text";
    if (!std::isfinite(piece.score())) return "a score that is not finite";
    if (piece.type() == Piece::USER_DEFINED) symbols.push_back(piece.piece());
  }
  if (is_nested_too_deeply(symbols)) return "too many symbols that begin each other";
  for (const Spec* spec : {&model.normalizer_spec(), &model.denormalizer_spec()}) {
    const std::string& charsmap = spec->precompiled_charsmap();
    if (!charsmap.empty() && !is_charsmap(charsmap)) return "damaged rules of normalization";
  }
  return "";
}

std::string read_file(const std::filesystem::path& path) {
  if (static_cast<int64_t>(std::filesystem::file_size(path)) > TOKENIZER_BYTES) {
    throw invalid_engine("larger than " + grouped(TOKENIZER_BYTES) + " bytes", path.string());
  }
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::unique_ptr<sentencepiece::ModelProto> read_tokenizer_model(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  auto model = std::make_unique<sentencepiece::ModelProto>();
  if (!model->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    throw invalid_engine("not a SentencePiece model", path.string(), RETRAIN);
  }
  model->clear_self_test_data();  // texts that SentencePiece would encode, and print
  const std::string problem = problem_of(*model);
  if (!problem.empty()) throw invalid_engine("the SentencePiece model has " + problem, path.string(), RETRAIN);
  return model;
}

}  // namespace xformc
