#include "json_vocabulary.h"

#include <algorithm>
#include <array>

#include "byte_pairs.h"
#include "failure.h"
#include "normal_form.h"
#include "numbers.h"
#include "unicode.h"

namespace xformc {
namespace {

using Span = std::pair<size_t, size_t>;

bool is_shown(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

// The character that stands for each byte in pieces of bytes (Radford et al. 2019): itself, or one from 256 on.
const std::array<char32_t, 256>& shown_bytes() {
  static const auto characters = [] {
    std::array<char32_t, 256> found{};
    char32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) found[byte] = is_shown(byte) ? static_cast<char32_t>(byte) : next++;
    return found;
  }();
  return characters;
}

// The bytes that a piece stands for; those of its own text if one of its characters stands for none.
std::string bytes_of(const std::string& piece) {
  static const auto bytes = [] {
    std::unordered_map<char32_t, char> found;
    for (int byte = 0; byte < 256; ++byte) found.emplace(shown_bytes()[byte], static_cast<char>(byte));
    return found;
  }();
  std::string text;
  for (size_t at = 0; at < piece.size();) {
    const auto found = bytes.find(next_character(piece, at));
    if (found == bytes.end()) return piece;
    text += found->second;
  }
  return text;
}

std::string shown(std::string_view word) {
  std::string text;
  for (const char byte : word) append_character(shown_bytes()[static_cast<unsigned char>(byte)], text);
  return text;
}

// Whether a byte is of a character that began before it.
bool is_inside(char byte) { return (byte & 0xc0) == 0x80; }

size_t characters_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) { return !is_inside(byte); }));
}

// The numbers of spaces that a piece begins and ends with, as text or as bytes.
std::pair<size_t, size_t> spaces_of(const std::string& piece) {
  size_t before = 0, after = 0, count = 0;
  for (size_t at = 0; at < piece.size(); ++count) {
    const char32_t character = next_character(piece, at);
    const bool space = character == shown_bytes()[' '] || is_white_space(character);
    if (space && before == count) ++before;
    after = space ? after + 1 : 0;
  }
  return {before, after};
}

std::string replaced(std::string_view text, const std::string& from, const std::string& to) {
  std::string found;
  size_t at = 0;
  for (size_t next; (next = text.find(from, at)) != std::string::npos; at = next + from.size()) {
    found.append(text, at, next - at).append(to);
  }
  return found.append(text, at, text.size() - at);
}

// A text with marks in place of spaces; `first` if it begins the whole one.
std::string marked(std::string_view text, const SpaceMark& mark, bool first) {
  const std::string found = replaced(text, " ", mark.text);
  const bool added = mark.added == SpaceMark::always || (mark.added == SpaceMark::first && first);
  return added && found.compare(0, mark.text.size(), mark.text) != 0 ? mark.text + found : found;
}

// A piece as it follows others in a text: after a space, unless it goes on with a word.
std::string joined_piece(const std::string& piece, bool first, const Spelling& spelling) {
  static constexpr std::pair<const char*, const char*> CLEANER[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  const bool goes_on = piece.compare(0, spelling.from.size(), spelling.from) == 0;
  std::string text = first ? piece : goes_on ? piece.substr(spelling.from.size()) : " " + piece;
  if (!spelling.cleans) return text;
  for (const auto& [from, to] : CLEANER) text = replaced(text, from, to);
  return text;
}

// Adds the parts of a span that are runs of one kind; `alone` ones are runs of one character, and `dropped` ones none.
template <typename Is>
void cut_runs(std::string_view text, Span span, Is is, bool alone, bool dropped, std::vector<Span>& parts) {
  size_t begin = span.first;
  bool inside = false;  // a run of characters of the kind
  for (size_t at = span.first; at < span.second;) {
    const size_t here = at;
    const bool found = is(next_character(text, at));
    if (here > begin && (found != inside || (found && alone))) {
      if (!inside || !dropped) parts.emplace_back(begin, here);
      begin = here;
    }
    inside = found;
  }
  if (span.second > begin && (!inside || !dropped)) parts.emplace_back(begin, span.second);
}

void cut(std::string_view text, Span span, const Cut& how, std::vector<Span>& parts) {
  switch (how.kind) {
    case Cut::pattern: {
      const std::string_view whole = text.substr(0, span.second);
      for (size_t at = span.first; at < span.second;) {
        const size_t end = how.word_end(whole, at);
        parts.emplace_back(at, end);
        at = end;
      }
      return;
    }
    case Cut::digits: return cut_runs(text, span, is_number, true, false, parts);
    case Cut::runs_of_digits: return cut_runs(text, span, is_number, false, false, parts);
    case Cut::white_space: return cut_runs(text, span, is_white_space, false, true, parts);
    case Cut::punctuation: return cut_runs(text, span, is_punctuation, true, false, parts);
    case Cut::characters: return cut_runs(text, span, [](char32_t) { return true; }, true, false, parts);
    case Cut::before:
    case Cut::after: {
      size_t begin = span.first;
      for (size_t at = begin; (at = text.substr(0, span.second).find(how.text, at)) != std::string_view::npos;) {
        const size_t end = how.kind == Cut::before ? at : at + how.text.size();
        if (end > begin) parts.emplace_back(begin, end);
        begin = end;
        at += how.text.size();
      }
      if (span.second > begin) parts.emplace_back(begin, span.second);
      return;
    }
  }
}

// Without characters of one kind around it: at most `start` before and `stop` after it.
std::string stripped(const std::string& piece, const std::string& character, size_t start, size_t stop) {
  size_t begin = 0, end = piece.size();
  for (; start > 0 && piece.compare(begin, character.size(), character) == 0; --start) begin += character.size();
  const auto ends = [&] {
    return end >= begin + character.size() && piece.compare(end - character.size(), character.size(), character) == 0;
  };
  for (; stop > 0 && ends(); --stop) end -= character.size();
  return piece.substr(begin, end - begin);
}

// Pieces of bytes, one after the other, as the text that they spell, or each as a replacement character.
std::vector<std::string> with_bytes(const std::vector<std::string>& pieces) {
  static const auto bytes = [] {
    std::unordered_map<std::string, char> found;
    for (int byte = 0; byte < 256; ++byte) found.emplace(byte_piece(byte), static_cast<char>(byte));
    return found;
  }();
  std::vector<std::string> found;
  std::string run;
  const auto end_run = [&] {
    if (run.empty()) return;
    if (lossy_utf8(run) == run) {
      found.push_back(run);
    } else {
      found.insert(found.end(), run.size(), "\xef\xbf\xbd");
    }
    run.clear();
  };
  for (const std::string& piece : pieces) {
    const auto byte = bytes.find(piece);
    if (byte != bytes.end()) {
      run += byte->second;
    } else {
      end_run();
      found.push_back(piece);
    }
  }
  end_run();
  return found;
}

std::string spelled_in_steps(std::vector<std::string> pieces, const std::vector<SpellingStep>& steps) {
  for (const SpellingStep& step : steps) {
    if (step.kind == SpellingStep::bytes) {
      pieces = with_bytes(pieces);
    } else if (step.kind == SpellingStep::fuse) {
      pieces = {joined(pieces, "")};
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      std::string& piece = pieces[i];
      if (step.kind == SpellingStep::replace) piece = replaced(piece, step.from, step.to);
      if (step.kind == SpellingStep::strip) piece = stripped(piece, step.from, step.start, step.stop);
      if (step.kind == SpellingStep::marks) piece = replaced(piece, step.from, i == 0 && step.first ? "" : " ");
    }
  }
  return joined(pieces, "");
}

// What of a file changes the places of words; null for nothing.
const char* moves_words(const TokenizerJson& file) {
  if (file.space_mark) return "Metaspace";
  for (const Rewrite& one : file.rewrites) {
    if (one.kind == Rewrite::bert) return "a BertNormalizer";
    if (one.kind == Rewrite::prepend) return "the normalizer Prepend";
    if (one.kind == Rewrite::replace && one.from.find(' ') != std::string::npos) {
      return "a normalizer that replaces spaces";
    }
  }
  return nullptr;
}

}  // namespace

JsonVocabulary::JsonVocabulary(const std::filesystem::path& path, int64_t size, SpecialTokens special)
    : Vocabulary(std::move(special)), file_(read_tokenizer_json(path)), size_(size) {
  const bool passes = file_.passes_through && special_.unknown && file_.model->unknown == special_.unknown;
  int64_t largest = passes ? -1 : file_.largest;
  for (const auto* around : {&file_.before, &file_.after}) {
    for (const int64_t id : *around) largest = std::max(largest, id);
  }
  if (largest >= size) {
    throw invalid_engine(
        "has the id " + grouped(largest) + "; the engine's vocabulary has " + grouped(size) + " tokens", path.string());
  }
  std::vector<std::pair<std::string, const AddedToken*>> first, second;
  for (const bool special_ones : {true, false}) {
    for (const AddedToken& token : file_.added) {
      if (token.special != special_ones) continue;
      added_.emplace(token.id, &token);
      if (token.normalized) {
        second.emplace_back(rewritten(token.content), &token);
      } else {
        first.emplace_back(token.content, &token);
      }
    }
  }
  first_ = std::make_unique<const AddedTokens>(first);
  second_ = std::make_unique<const AddedTokens>(second);
  set_template();
  if (special_.ends || after_.empty()) return;
  throw invalid_engine("its template puts tokens after a text, but the input has no end", path.string(),
                       "leave out `ends: false`, or remove the template");
}

void JsonVocabulary::set_template() {
  if (file_.before.empty() && file_.after.empty()) return;
  before_ = file_.before;
  after_ = file_.after;
  if (!encode_open("a").empty()) return;  // the Python runtime finds the place of a text by this one
  after_.insert(after_.begin(), before_.begin(), before_.end());
  before_.clear();
}

std::string JsonVocabulary::rewritten(std::string_view text) const {
  std::string found(text);
  for (const Rewrite& one : file_.rewrites) {
    switch (one.kind) {
      case Rewrite::compose: found = composed(found); break;
      case Rewrite::replace: found = replaced(found, one.from, one.to); break;
      case Rewrite::prepend: found = found.empty() ? found : one.to + found; break;
      case Rewrite::bert: found = bert_text(found, one.as_bert); break;
    }
  }
  return found;
}

JsonVocabulary::Tokens JsonVocabulary::tokens_of(std::string_view text) const {
  Tokens tokens;
  std::string& whole = tokens.spelled.text;
  const auto add = [&](const AddedToken& token, std::string_view found) {
    tokens.ids.push_back(token.id);
    tokens.spelled.spans.emplace_back(whole.size(), whole.size() + found.size());
    whole += found;
  };
  for (const Section& section : first_->sections(text)) {
    const std::string_view given = text.substr(section.begin, section.end - section.begin);
    if (section.token != nullptr) {
      add(*section.token, given);
      continue;
    }
    const std::string changed = rewritten(given);
    for (const Section& part : second_->sections(changed)) {
      const std::string_view found = std::string_view(changed).substr(part.begin, part.end - part.begin);
      if (part.token != nullptr) {
        add(*part.token, found);
      } else {
        add_words(found, section.begin + part.begin == 0, tokens);
        whole += found;
      }
    }
  }
  if (file_.largest >= size_) {
    for (int64_t& id : tokens.ids) {
      if (id >= size_) id = *special_.unknown;
    }
  }
  return tokens;
}

// The tokens of a section without added ones, whose text follows in `spelled`.
void JsonVocabulary::add_words(std::string_view text, bool first, Tokens& tokens) const {
  const size_t start = tokens.spelled.text.size();
  const bool spaced = file_.adds_space && !text.empty() && text[0] != ' ';
  std::string led = spaced ? " " + std::string(text) : "";
  if (spaced) text = led;
  if (file_.space_mark) text = led = marked(text, *file_.space_mark, first);
  std::vector<Span> words = {{0, text.size()}}, parts;
  for (const Cut& how : file_.cuts) {
    parts.clear();
    for (const Span& word : words) cut(text, word, how, parts);
    words.swap(parts);
  }
  const size_t before = spaced ? 1 : 0;  // the space that is not in the text; its place is that of the next character
  const auto place = [&](size_t at) { return start + std::max(at, before) - before; };
  std::vector<Part> found;
  std::string as_bytes;
  for (const auto& [begin, end] : words) {
    std::string_view word = text.substr(begin, end - begin);
    if (file_.of_bytes) word = as_bytes = shown(word);
    found.clear();
    file_.model->encode(word, found);
    size_t at = begin;
    for (const Part& part : found) {
      const size_t size = file_.of_bytes ? characters_of(word.substr(0, part.size)) : part.size;
      word.remove_prefix(part.size);
      tokens.ids.push_back(part.id);
      tokens.spelled.spans.emplace_back(place(at), place(at + size + (at + size == before ? 1 : 0)));
      at += size;
    }
  }
}

Ids JsonVocabulary::encode_open(std::string_view text) const { return tokens_of(text).ids; }

Spelled JsonVocabulary::spelled(std::string_view text) const {
  if (const char* mover = moves_words(file_)) {
    throw invalid_argument(
        std::string("this library gives no alignments of texts with ") + mover + ", which moves their words", "",
        "run the engine with xformc's Python runtime");
  }
  Tokens tokens = tokens_of(text);
  // A token of some bytes of a character has all of it, as in Python.
  const std::string& whole = tokens.spelled.text;
  for (auto& [begin, end] : tokens.spelled.spans) {
    while (begin > 0 && begin < whole.size() && is_inside(whole[begin])) --begin;
    while (end < whole.size() && is_inside(whole[end])) ++end;
  }
  for (const bool added : file_.trims) trim(tokens, added);
  return tokens.spelled;
}

// Leaves the spaces that tokens begin and end with out of their places. The space that was added to the beginning of
// the text is not there; one that was added later is taken for a character, as in Python.
void JsonVocabulary::trim(Tokens& tokens, bool added) const {
  const std::string& whole = tokens.spelled.text;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    auto& [begin, end] = tokens.spelled.spans[i];
    auto [before, after] = spaces_of(piece(tokens.ids[i]));
    if (before > 0 && added && (i == 0 || begin == 0)) --before;
    for (; before > 0 && begin < end; --before) next_character(whole, begin);
    for (; after > 0 && begin < end; --after) {
      do --end;
      while (is_inside(whole[end]));
    }
  }
}

std::string JsonVocabulary::piece(int64_t id) const {
  const auto added = added_.find(id);
  if (added != added_.end()) return added->second->content;
  const auto found = file_.names.find(id);
  return found == file_.names.end() ? "" : found->second;
}

std::string JsonVocabulary::text_of(const Ids& ids) const {
  std::vector<std::string> pieces;
  for (const int64_t id : ids) {
    const auto added = added_.find(id);
    if (added != added_.end() && added->second->special) continue;
    const auto named = file_.names.find(id);
    if (added != added_.end()) {
      const AddedToken& token = *added->second;
      pieces.push_back(token.normalized ? rewritten(token.content) : token.content);  // as the package has it
    } else if (named != file_.names.end()) {
      pieces.push_back(named->second);
    }
  }
  const Spelling& spelling = file_.spelling;
  std::string text;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const bool last = i + 1 == pieces.size();
    switch (spelling.kind) {
      case Spelling::spaced: text.append(i == 0 ? "" : " ").append(pieces[i]); break;
      case Spelling::bytes: text += bytes_of(pieces[i]); break;
      case Spelling::word_ends: text += replaced(pieces[i], spelling.from, last ? "" : " "); break;
      case Spelling::steps: break;
      case Spelling::word_pieces: text += joined_piece(pieces[i], i == 0, spelling); break;
    }
  }
  if (spelling.kind == Spelling::steps) return spelled_in_steps(pieces, spelling.order);
  return spelling.kind == Spelling::bytes ? lossy_utf8(text) : text;
}

}  // namespace xformc
