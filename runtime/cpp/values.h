// The results of examples besides written text: numbers, and for labels those that hold.
#pragma once

#include <cstdint>
#include <vector>

#include "output.h"
#include "rows.h"

namespace xformc {

// One result of one example.
struct Value {
  ResultKind kind = ResultKind::text;
  std::vector<float> numbers;   // in row-major order; of labels, their probabilities
  std::vector<int64_t> shape;   // of labels [positions or 1, labels]
  std::vector<int64_t> best;    // of labels: the most likely one of each row
  std::vector<int64_t> labels;  // of labels: those that hold, row after row
  std::vector<size_t> per_row;  // of labels: how many hold in each row
};

// The value of an example without positions.
Value no_value(const DeclaredResult& result);

// The values of these rows, without padding, from their output; `inputs` are those of the rows. Throws Failure for an
// output of another shape.
std::vector<Value> read_values(const DeclaredResult& result, const Output& output, const std::vector<Input>& inputs,
                               const Rows& rows);

}  // namespace xformc
