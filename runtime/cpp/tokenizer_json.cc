#include "tokenizer_json.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "byte_pairs.h"
#include "failure.h"
#include "numbers.h"
#include "unicode.h"
#include "word_pieces.h"

namespace xformc {
namespace {

using Json = nlohmann::json;

constexpr size_t FILE_BYTES = 1 << 28;
constexpr int DEEPEST = 100;
constexpr size_t MOST_VALUES = 1 << 23;
constexpr int64_t LONGEST_WORD = 1000;  // in characters, of WordPiece, whose time is quadratic in it
constexpr int64_t LARGEST_ID = int64_t{1} << 31;
constexpr double MOST_GROWTH = 100;  // times as long, what replacements may make of a text in all

// A value in the file, with its path in messages.
class Item {
 public:
  Item(const Json& value, std::string path, const std::string& place)
      : value_(value), path_(std::move(path)), place_(place) {}

  const Json& value() const { return value_; }
  const std::string& place() const { return place_; }
  bool has(const char* key) const { return value_.is_object() && value_.contains(key) && !value_[key].is_null(); }
  bool is_object() const { return value_.is_object(); }

  Item at(const char* key) const {
    if (!has(key)) fail(key, "is missing");
    return {value_[key], path_ + (path_.empty() ? "" : ".") + key, place_};
  }

  // The items of a list.
  std::vector<Item> items() const {
    if (!value_.is_array()) fail(nullptr, "must be a list");
    std::vector<Item> found;
    for (const Json& item : value_) found.emplace_back(item, path_, place_);
    return found;
  }

  std::string text(const char* key) const {
    const Item part = at(key);
    if (!part.value_.is_string()) fail(key, "must be a string");
    return part.value_.get<std::string>();
  }
  std::string text(const char* key, const char* otherwise) const { return has(key) ? text(key) : otherwise; }

  bool flag(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!value_[key].is_boolean()) fail(key, "must be true or false");
    return value_[key].get<bool>();
  }

  int64_t id() const {
    if (!value_.is_number_unsigned() || value_.get<uint64_t>() >= LARGEST_ID) fail(nullptr, "must be an id");
    return value_.get<int64_t>();
  }

  std::string type() const { return text("type"); }

  [[noreturn]] void fail(const char* key, const std::string& what) const {
    const std::string name = key == nullptr ? path_ : path_ + (path_.empty() ? "" : ".") + key;
    throw invalid_engine("not a tokenizer.json: " + (name.empty() ? "the file" : name) + " " + what, place_);
  }

 private:
  const Json& value_;
  std::string path_;
  const std::string& place_;
};

[[noreturn]] void lacks(const std::string& what) { throw Unsupported{what}; }

Json parsed(const std::filesystem::path& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) throw invalid_engine("cannot be read: " + error.message(), path.string());
  if (size > FILE_BYTES) {
    throw invalid_engine("larger than " + grouped(static_cast<int64_t>(FILE_BYTES)) + " bytes", path.string());
  }
  std::ifstream file(path, std::ios::binary);
  const auto check = [&, count = size_t{0}](int depth, Json::parse_event_t, Json&) mutable {
    if (depth <= DEEPEST && ++count <= MOST_VALUES) return true;
    const std::string limit =
        depth > DEEPEST ? std::to_string(DEEPEST) + " levels" : grouped(static_cast<int64_t>(MOST_VALUES)) + " values";
    throw invalid_engine("not a tokenizer.json: more than " + limit, path.string());
  };
  Json found = Json::parse(file, check, false);
  if (found.is_discarded()) throw invalid_engine("not a tokenizer.json: not JSON", path.string());
  return found;
}

// The pieces of a model, with their ids.
void read_pieces(const Item& model, TokenizerJson& found) {
  const Item vocabulary = model.at("vocab");
  if (!vocabulary.is_object()) vocabulary.fail(nullptr, "must map pieces to ids");
  for (const auto& [piece, id] : vocabulary.value().items()) {
    const int64_t number = Item(id, "model.vocab", vocabulary.place()).id();
    found.model->pieces.emplace(piece, number);
    if (!found.names.emplace(number, piece).second) lacks("two pieces of id " + std::to_string(number));
    found.largest = std::max(found.largest, number);
  }
}

int64_t piece_id(const WordModel& model, const Item& part, const std::string& piece, const char* what) {
  const auto found = model.pieces.find(piece);
  if (found == model.pieces.end()) part.fail(what, "has '" + piece.substr(0, 60) + "', which is no piece");
  return found->second;
}

// A pair as a list of two, or as older files have it: with a space between them.
std::pair<std::string, std::string> pair_of(const Item& merge) {
  const Json& value = merge.value();
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string()) {
    return {value[0].get<std::string>(), value[1].get<std::string>()};
  }
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    merge.fail(nullptr, "must be pairs of pieces");
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

// The pieces of all bytes, `<0x00>` to `<0xFF>`.
std::vector<int64_t> byte_pieces(const BytePairs& model) {
  if (!model.word_end.empty()) lacks("a model with byte_fallback and an end_of_word_suffix");
  std::vector<int64_t> found;
  for (int byte = 0; byte < 256; ++byte) {
    const auto piece = model.pieces.find(byte_piece(byte));
    if (piece == model.pieces.end()) lacks("a model with byte_fallback and without " + byte_piece(byte));
    found.push_back(piece->second);
  }
  return found;
}

void read_byte_pairs(const Item& model, TokenizerJson& found) {
  auto pairs = std::make_unique<BytePairs>();
  BytePairs& read = *pairs;
  found.model = std::move(pairs);
  if (model.has("dropout") && model.at("dropout").value() != 0) lacks("merges that are left out at random (dropout)");
  if (!model.text("continuing_subword_prefix", "").empty()) lacks("a model with a continuing_subword_prefix");
  read.fuses_unknown = model.flag("fuse_unk", false);
  read.whole_words = model.flag("ignore_merges", false);
  read.word_end = model.text("end_of_word_suffix", "");
  read_pieces(model, found);
  if (model.has("unk_token")) read.unknown = piece_id(read, model, model.text("unk_token"), "unk_token");
  if (model.flag("byte_fallback", false)) read.bytes = byte_pieces(read);
  found.passes_through = !read.word_end.empty();
  std::vector<BytePairs::Merge> merges;
  for (const Item& merge : model.at("merges").items()) {
    const auto [left, right] = pair_of(merge);
    merges.push_back({piece_id(read, merge, left, nullptr), piece_id(read, merge, right, nullptr),
                      piece_id(read, merge, left + right, nullptr)});
  }
  read.add_merges(merges);
}

void read_word_pieces(const Item& model, TokenizerJson& found) {
  auto pieces = std::make_unique<WordPieces>();
  pieces->inside = model.text("continuing_subword_prefix", "##");
  if (model.has("max_input_chars_per_word")) {
    const int64_t longest = model.at("max_input_chars_per_word").id();
    if (longest > LONGEST_WORD) lacks("words of " + grouped(longest) + " characters (max_input_chars_per_word)");
    pieces->longest = static_cast<size_t>(longest);
  }
  found.model = std::move(pieces);
  read_pieces(model, found);
  found.model->unknown = piece_id(*found.model, model, model.text("unk_token", "[UNK]"), "unk_token");
}

void read_model(const Item& model, TokenizerJson& found) {
  const std::string type = model.text("type", model.has("merges") ? "BPE" : "");
  if (type == "BPE") return read_byte_pairs(model, found);
  if (type == "WordPiece") return read_word_pieces(model, found);
  if (type.empty()) model.fail("type", "is missing");
  if (type != "WordLevel") lacks("a model of type " + type);
  found.model = std::make_unique<WholeWords>();
  read_pieces(model, found);
  found.model->unknown = piece_id(*found.model, model, model.text("unk_token"), "unk_token");
}

void read_normalizer(const Item& normalizer, TokenizerJson& found) {
  const std::string type = normalizer.type();
  if (type == "Sequence") {
    for (const Item& one : normalizer.at("normalizers").items()) {
      if (one.has("normalizers")) lacks("a normalizer Sequence in another");
      read_normalizer(one, found);
    }
  } else if (type == "NFC") {
    found.rewrites.push_back({Rewrite::compose});
  } else if (type == "Replace" && normalizer.at("pattern").has("String")) {
    const std::string from = normalizer.at("pattern").text("String");
    if (from.empty()) lacks("a normalizer Replace of nothing");
    found.rewrites.push_back({Rewrite::replace, from, normalizer.text("content")});
  } else if (type == "Prepend") {
    found.rewrites.push_back({Rewrite::prepend, "", normalizer.text("prepend")});
  } else if (type == "BertNormalizer") {
    const bool lowers = normalizer.flag("lowercase", true);
    const bool strips = normalizer.flag("strip_accents", lowers);
    found.rewrites.push_back(
        {Rewrite::bert,
         "",
         "",
         {normalizer.flag("clean_text", true), normalizer.flag("handle_chinese_chars", true), strips, lowers}});
  } else {
    lacks("the normalizer " + type);
  }
}

void read_byte_level(const Item& step, bool alone, TokenizerJson& found) {
  found.adds_space = step.flag("add_prefix_space", true);
  if (found.adds_space && !alone) lacks("the pre_tokenizer ByteLevel with add_prefix_space after another one");
  if (step.flag("use_regex", true)) found.cuts.push_back({Cut::pattern, gpt2_words()});
  found.of_bytes = true;
}

void read_split(const Item& step, TokenizerJson& found) {
  const Item pattern = step.at("pattern");
  if (pattern.has("String")) {
    const std::string text = pattern.text("String"), behavior = step.text("behavior");
    const bool before = behavior == "MergedWithNext", after = behavior == "MergedWithPrevious";
    if (text.empty() || (!before && !after) || step.flag("invert", false)) lacks("the pre_tokenizer Split at a string");
    found.cuts.push_back({before ? Cut::before : Cut::after, nullptr, text});
    return;
  }
  const std::string expression = pattern.text("Regex");
  if (step.text("behavior") != "Isolated" || step.flag("invert", false)) {
    lacks("the pre_tokenizer Split with behavior " + step.text("behavior"));
  }
  if (expression == R"([\s\S])") {
    found.cuts.push_back({Cut::characters});
  } else if (const WordEnd word_end = word_end_of(expression)) {
    found.cuts.push_back({Cut::pattern, word_end});
  } else {
    lacks("the pre_tokenizer Split with the pattern " + expression);
  }
}

// One character, as the file has it.
std::string character(const Item& part, const char* key) {
  const std::string text = part.text(key);
  size_t size = 0;
  if (!text.empty()) next_character(text, size);
  if (size != text.size() || text.empty()) part.fail(key, "must be a character");
  return text;
}

// Files without `prepend_scheme` are older.
SpaceMark::Added mark_added(const Item& part) {
  const char* older = part.flag("add_prefix_space", true) ? "always" : "never";
  const std::string scheme = part.text("prepend_scheme", older);
  if (scheme == "always") return SpaceMark::always;
  if (scheme == "first") return SpaceMark::first;
  if (scheme != "never") part.fail("prepend_scheme", "must be always, first or never");
  return SpaceMark::never;
}

void read_metaspace(const Item& step, bool alone, TokenizerJson& found) {
  if (!alone) lacks("the pre_tokenizer Metaspace beside others");
  const std::string mark = character(step, "replacement");
  found.space_mark = {mark, mark_added(step)};
  if (step.flag("split", true)) found.cuts.push_back({Cut::before, nullptr, mark});
}

void read_pre_tokenizer(const Item& step, bool alone, TokenizerJson& found) {
  const std::string type = step.type();
  if (found.of_bytes) lacks("the pre_tokenizer " + type + " after ByteLevel");
  if (type == "Sequence" && alone) {
    const std::vector<Item> steps = step.at("pretokenizers").items();
    for (const Item& one : steps) read_pre_tokenizer(one, steps.size() == 1, found);
  } else if (type == "ByteLevel") {
    read_byte_level(step, alone, found);
  } else if (type == "Split") {
    read_split(step, found);
  } else if (type == "Metaspace") {
    read_metaspace(step, alone, found);
  } else if (type == "Digits") {
    found.cuts.push_back({step.flag("individual_digits", false) ? Cut::digits : Cut::runs_of_digits});
  } else if (type == "WhitespaceSplit") {
    found.cuts.push_back({Cut::white_space});
  } else if (type == "BertPreTokenizer") {
    found.cuts.push_back({Cut::white_space});
    found.cuts.push_back({Cut::punctuation});
  } else {
    lacks("the pre_tokenizer " + type);
  }
}

SpellingStep spelling_step(const Item& decoder) {
  const std::string type = decoder.type();
  if (type == "Fuse") return {SpellingStep::fuse};
  if (type == "ByteFallback") return {SpellingStep::bytes};
  if (type == "Metaspace") {
    return {SpellingStep::marks, character(decoder, "replacement"), "", 0, 0, mark_added(decoder) != SpaceMark::never};
  }
  if (type == "Strip") {
    const auto start = static_cast<size_t>(decoder.at("start").id()),
               stop = static_cast<size_t>(decoder.at("stop").id());
    return {SpellingStep::strip, character(decoder, "content"), "", start, stop};
  }
  if (type != "Replace" || !decoder.at("pattern").has("String")) lacks("the decoder " + type + " in a Sequence");
  const std::string from = decoder.at("pattern").text("String");
  if (from.empty()) lacks("the decoder Replace of nothing");
  return {SpellingStep::replace, from, decoder.text("content")};
}

void read_decoder(const Item& decoder, TokenizerJson& found) {
  const std::string type = decoder.type();
  if (type == "ByteLevel") {
    found.spelling = {Spelling::bytes};
  } else if (type == "BPEDecoder") {
    found.spelling = {Spelling::word_ends, decoder.text("suffix", "</w>")};
    if (found.spelling.from.empty()) lacks("the decoder BPEDecoder without a suffix");
  } else if (type == "WordPiece") {
    found.spelling = {Spelling::word_pieces, decoder.text("prefix", "##"), decoder.flag("cleanup", true)};
  } else if (type == "Sequence") {
    found.spelling = {Spelling::steps};
    for (const Item& one : decoder.at("decoders").items()) found.spelling.order.push_back(spelling_step(one));
  } else if (type == "Metaspace") {
    found.spelling = {Spelling::steps};
    found.spelling.order.push_back(spelling_step(decoder));
  } else {
    lacks("the decoder " + type);
  }
}

// A pair of a token and its id.
int64_t id_in_pair(const Item& pair) {
  const std::vector<Item> items = pair.items();
  if (items.size() != 2) pair.fail(nullptr, "must be a token and its id");
  return items[1].id();
}

void read_template(const Item& processor, TokenizerJson& found) {
  bool text = false;
  for (const Item& item : processor.at("single").items()) {
    if (item.has("Sequence")) {
      if (text || item.at("Sequence").text("id") != "A") lacks("a template with several texts");
      text = true;
      continue;
    }
    const std::string name = item.at("SpecialToken").text("id");
    const Item special = processor.at("special_tokens");
    if (!special.has(name.c_str())) special.fail(nullptr, "lacks '" + name.substr(0, 60) + "'");
    for (const Item& id : special.at(name.c_str()).at("ids").items()) {
      (text ? found.after : found.before).push_back(id.id());
    }
  }
  if (!text) lacks("a template without a text");
}

void read_post_processor(const Item& processor, TokenizerJson& found) {
  const std::string type = processor.type();
  if (type == "ByteLevel" || type == "RobertaProcessing") {
    if (processor.flag("trim_offsets", true)) found.trims.push_back(processor.flag("add_prefix_space", true));
  }
  if (type == "ByteLevel") return;
  if (type == "Sequence") {
    for (const Item& one : processor.at("processors").items()) {
      if (one.has("processors")) lacks("a post_processor Sequence in another");
      read_post_processor(one, found);
    }
    return;
  }
  if (!found.before.empty() || !found.after.empty()) lacks("several templates");
  if (type == "TemplateProcessing") return read_template(processor, found);
  if (type != "RobertaProcessing" && type != "BertProcessing") lacks("the post_processor " + type);
  found.before = {id_in_pair(processor.at("cls"))};
  found.after = {id_in_pair(processor.at("sep"))};
}

// The tokens get their ids from the model, or from the end of it on in their order, as the package gives them.
void read_added(const Item& tokens, TokenizerJson& found) {
  std::unordered_set<std::string> known;
  const auto size = static_cast<int64_t>(found.model->pieces.size());
  int64_t most = -1;
  for (const Item& token : tokens.items()) {
    const std::string content = token.text("content");
    if (content.empty()) continue;
    if (token.flag("single_word", false)) lacks("the added token " + content + ", which must be a single word");
    const auto piece = found.model->pieces.find(content);
    const int64_t next = most >= size ? most + 1 : size;
    const int64_t id = piece != found.model->pieces.end() ? piece->second : next;
    if (token.at("id").id() != id || !known.insert(content).second) {
      lacks("added tokens that contradict each other about " + content);
    }
    most = std::max(most, id);
    const bool special = token.flag("special", false);
    found.added.push_back({content, id, special, token.flag("normalized", !special), token.flag("lstrip", false),
                           token.flag("rstrip", false)});
    found.largest = std::max(found.largest, id);
  }
}

double growth_of(const std::string& from, const std::string& to) {
  return std::max(1.0, static_cast<double>(to.size()) / static_cast<double>(from.size()));
}

// Replacements multiply: a few of them would make more of a short text than fits into memory.
void check_growth(const TokenizerJson& found) {
  double text = 1, spelled = 1;
  for (const Rewrite& one : found.rewrites) {
    if (one.kind == Rewrite::replace) text *= growth_of(one.from, one.to);
    if (one.kind == Rewrite::prepend) text += static_cast<double>(one.to.size());
  }
  for (const SpellingStep& step : found.spelling.order) {
    if (step.kind == SpellingStep::replace) spelled *= growth_of(step.from, step.to);
  }
  if (std::max(text, spelled) > MOST_GROWTH) lacks("replacements that make a text 100 times as long or more");
}

}  // namespace

TokenizerJson read_tokenizer_json(const std::filesystem::path& path) {
  const std::string place = path.string();
  const Json json = parsed(path);
  const Item file(json, "", place);
  if (!file.is_object()) file.fail(nullptr, "must be an object");
  TokenizerJson found;
  read_model(file.at("model"), found);
  if (file.has("added_tokens")) read_added(file.at("added_tokens"), found);
  if (file.has("normalizer")) read_normalizer(file.at("normalizer"), found);
  if (file.has("pre_tokenizer")) read_pre_tokenizer(file.at("pre_tokenizer"), true, found);
  if (file.has("post_processor")) read_post_processor(file.at("post_processor"), found);
  if (file.has("decoder")) read_decoder(file.at("decoder"), found);
  check_growth(found);
  return found;
}

}  // namespace xformc
