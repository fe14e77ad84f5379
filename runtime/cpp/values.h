// The results of examples besides written text: numbers, for labels those that hold, for alignments their texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "output.h"
#include "rows.h"
#include "tokenizer.h"

namespace xformc {

struct Hypothesis {
  std::string text;
  float score;
  Ids tokens;
};

// One result of one example.
struct Value {
  ResultKind kind = ResultKind::text;
  std::vector<float> numbers;          // in row-major order; of labels, their probabilities
  std::vector<int64_t> shape;          // of labels [positions or 1, labels]
  std::vector<int64_t> best;           // of labels: the most likely one of each row
  std::vector<int64_t> labels;         // of labels: those that hold, row after row
  std::vector<size_t> per_row;         // of labels: how many hold in each row
  std::vector<Hypothesis> hypotheses;  // of an alignment, best first
};

// The values of all results of these rows but written text, without padding: [results][rows].
class ValueReader {
 public:
  // The manifest and the tokenizer must live as long as the reader.
  ValueReader(const Manifest& manifest, const Tokenizer& tokenizer);

  // The values of an example without positions.
  std::vector<Value> nothing() const;

  // `outputs` are those of the first of these results, and so on. Throws Failure for outputs of other shapes.
  std::vector<std::vector<Value>> read(const Output* outputs, const Rows& rows) const;

 private:
  std::string text(const DeclaredResult& result, const Ids& tokens) const;
  std::vector<Value> alignments(const DeclaredResult& result, const Output* outputs, const Rows& rows) const;

  const std::vector<Input>& inputs_;
  const Tokenizer& tokenizer_;
  std::vector<DeclaredResult> results_;
};

}  // namespace xformc
