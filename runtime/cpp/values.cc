#include "values.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

namespace xformc {
namespace {

constexpr float LIKELY = 0.5F;  // the probability from which a label holds, where several may

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

void add_labels(Value& value, const DeclaredResult& result) {
  const auto count = static_cast<int64_t>(result.labels.size());
  for (int64_t row = 0; row < value.shape[0]; ++row) {
    const float* first = value.numbers.data() + row * count;
    value.best.push_back(std::max_element(first, first + count) - first);
    const size_t before = value.labels.size();
    if (!result.several) value.labels.push_back(value.best.back());
    for (int64_t label = 0; result.several && label < count; ++label) {
      if (first[label] >= LIKELY) value.labels.push_back(label);
    }
    value.per_row.push_back(value.labels.size() - before);
  }
}

// The index of the input whose positions have results, or nothing for a result of the whole.
std::optional<size_t> input_of(const DeclaredResult& result, const std::vector<Input>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].name == result.positions) return i;
  }
  return std::nullopt;
}

}  // namespace

Value no_value(const DeclaredResult& result) {
  Value value;
  value.kind = result.kind;
  value.shape = result.axes;
  value.shape.insert(value.shape.begin(), 0);
  return value;
}

std::vector<Value> read_values(const DeclaredResult& result, const Output& output, const std::vector<Input>& inputs,
                               const Rows& rows) {
  const std::optional<size_t> input = input_of(result, inputs);
  int64_t longest = 0;
  for (const Row* row : rows) longest = std::max(longest, input ? row->fields[*input].positions : 0);
  std::vector<Size> shape = {static_cast<int64_t>(rows.size())};
  if (input) shape.emplace_back(longest);
  shape.insert(shape.end(), result.axes.begin(), result.axes.end());
  std::vector<int64_t> found;
  const float* numbers = output.floats(shape, found);
  const int64_t each = product(result.axes), stride = each * (input ? longest : 1);
  std::vector<Value> values(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    Value& value = values[i];
    const int64_t positions = input ? rows[i]->fields[*input].positions : 1;
    const float* first = numbers + static_cast<int64_t>(i) * stride;
    value.kind = result.kind;
    value.numbers.assign(first, first + positions * each);
    value.shape = result.axes;
    if (input || result.kind == ResultKind::labels) value.shape.insert(value.shape.begin(), positions);
    if (result.kind == ResultKind::labels) add_labels(value, result);
  }
  return values;
}

}  // namespace xformc
