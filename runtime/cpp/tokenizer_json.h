// Reads a tokenizer.json, the format of the package tokenizers, from a file that nobody vouches for.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "added_tokens.h"
#include "bert_text.h"
#include "manifest.h"
#include "split_patterns.h"
#include "word_model.h"

namespace xformc {

// What a sound tokenizer.json has and this library lacks: the vocabulary is refused when a text needs it.
struct Unsupported {
  std::string what;
};

// A change of the whole text.
struct Rewrite {
  // To Unicode's form C; each of one text by another; a text before it, unless it is empty; as BertNormalizer.
  enum Kind { compose, replace, prepend, bert } kind;
  std::string from = {}, to = {};  // of replace and prepend
  BertText as_bert = {};           // of bert
};

// A step that cuts a text into words.
struct Cut {
  enum Kind { pattern, digits, runs_of_digits, white_space, characters, punctuation, before, after } kind;
  WordEnd word_end = nullptr;  // of a pattern
  std::string text = {};       // before or after which words are cut
};

// A text in place of each space; and before a section that does not begin with it, of all sections or of one that begins
// the whole text.
struct SpaceMark {
  std::string text;
  enum Added { always, first, never } added;
};

// A step from tokens to a text.
struct SpellingStep {
  // Each of one text by another; pieces of bytes by what they spell; all pieces by one; without some spaces around
  // pieces; marks by spaces, of the first piece by nothing.
  enum Kind { replace, bytes, fuse, strip, marks } kind;
  std::string from = {}, to = {};  // of replace; `from` is the character of strip, and the mark
  size_t start = 0, stop = 0;      // of strip: how many at most
  bool first = false;              // of marks: whether those of the first piece are left out
};

// How tokens become a text.
struct Spelling {
  enum Kind { spaced, bytes, word_ends, word_pieces, steps } kind = spaced;
  std::string from = {};  // the end of a word, or what its later pieces begin with
  bool cleans = false;    // leaves out spaces before punctuation, of word pieces
  std::vector<SpellingStep> order = {};
};

struct TokenizerJson {
  std::unique_ptr<WordModel> model;
  std::unordered_map<int64_t, std::string> names;  // of the model's pieces
  std::deque<AddedToken> added;
  std::vector<Rewrite> rewrites;
  bool adds_space = false;  // before each section that does not begin with one
  std::optional<SpaceMark> space_mark;
  std::vector<Cut> cuts;
  bool of_bytes = false;  // the characters of words stand for bytes
  Spelling spelling;
  std::vector<int64_t> before, after;  // the special tokens of its template
  std::vector<bool> trims;      // whether the places of tokens lose their spaces, but for one that was added to a text
  int64_t largest = -1;         // id
  bool passes_through = false;  // merges may make pieces that the engine's vocabulary lacks, and are unknown there
};

// Throws Failure for a file that is damaged or contradicts itself, and Unsupported.
TokenizerJson read_tokenizer_json(const std::filesystem::path& path);

}  // namespace xformc
