// The results of examples besides written text: numbers, for labels those that hold, for CTC the texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "output.h"
#include "rows.h"
#include "tokenizer.h"

namespace xformc {

struct Value;

// The alignment of a text with its source: pairs of a source's word or token and one of the text, one after the other,
// and the attention [targets, sources] of each token of the text.
struct Links {
  std::vector<int64_t> words, tokens;
  std::vector<float> attention;
  int64_t targets = 0, sources = 0;
};

struct Hypothesis {
  std::string text;
  float score;
  Ids tokens;
  std::vector<Value> values = {};        // of the engine's results, those that depend on this text; empty without any
  std::vector<float> token_scores = {};  // the log probability of each token, if it was asked for
  std::optional<Links> links = {};       // of a translation, if they were asked for
};

// One result of one example.
struct Value {
  ResultKind kind = ResultKind::text;
  std::vector<float> numbers;          // in row-major order; of labels, their probabilities
  std::vector<int64_t> shape;          // of labels [positions or 1, labels]
  std::vector<int64_t> best;           // of labels: the most likely one of each row
  std::vector<int64_t> labels;         // of labels: those that hold, row after row
  std::vector<size_t> per_row;         // of labels: how many hold in each row
  std::vector<Hypothesis> hypotheses;  // of CTC, best first
};

// Reads the values of the results that depend on the written text, or of the others but that text, without padding.
class ValueReader {
 public:
  // The manifest and the tokenizer must live as long as the reader.
  ValueReader(const Manifest& manifest, const Tokenizer& tokenizer, bool of_text = false);

  bool empty() const { return places_.empty(); }

  // Sets the values of an example without positions, at the places of these results among all.
  void set_nothing(std::vector<Value>& values) const;

  // Copies the values of these results.
  void copy(const std::vector<Value>& from, std::vector<Value>& to) const;

  // Sets the values of each row. `outputs` are those of the first of these results, and so on. Throws Failure for
  // outputs of other shapes.
  void read(const Output* outputs, const Rows& rows, const std::vector<std::vector<Value>*>& values) const;

 private:
  std::string text(const DeclaredResult& result, const Ids& tokens) const;
  std::vector<Value> transcripts(const DeclaredResult& result, const Output* outputs, const Rows& rows) const;

  const Manifest& manifest_;
  const Tokenizer& tokenizer_;
  std::vector<size_t> places_;
};

}  // namespace xformc
