#include "values.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "written.h"

namespace xformc {
namespace {

constexpr float LIKELY = 0.5F;                 // the probability from which a label holds, where several may
constexpr float IMPOSSIBLE = -1e8F;            // hypotheses that there are not have a score that is not higher
constexpr int64_t LONGEST = int64_t{1} << 20;  // the maximum length of a text

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

std::vector<Value> read_numbers(const DeclaredResult& result, const Output& output, const std::vector<Input>& inputs,
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

}  // namespace

ValueReader::ValueReader(const Manifest& manifest, const Tokenizer& tokenizer, bool of_text)
    : manifest_(manifest), tokenizer_(tokenizer) {
  for (size_t i = 0; i < manifest.results.size(); ++i) {
    const DeclaredResult& result = manifest.results[i];
    if (result.kind != ResultKind::text && result.of.empty() != of_text) places_.push_back(i);
  }
}

void ValueReader::set_nothing(std::vector<Value>& values) const {
  values.resize(manifest_.results.size());
  for (const size_t place : places_) {
    const DeclaredResult& result = manifest_.results[place];
    Value value;
    value.kind = result.kind;
    value.shape = result.axes;
    value.shape.insert(value.shape.begin(), 0);
    if (result.kind == ResultKind::ctc) value.hypotheses.push_back({text(result, {}), 0, {}});
    values[place] = std::move(value);
  }
}

void ValueReader::copy(const std::vector<Value>& from, std::vector<Value>& to) const {
  for (const size_t place : places_) to[place] = from[place];
}

void ValueReader::read(const Output* outputs, const Rows& rows, const std::vector<std::vector<Value>*>& values) const {
  for (const size_t place : places_) {
    const DeclaredResult& result = manifest_.results[place];
    const bool heard = result.kind == ResultKind::ctc;
    std::vector<Value> found =
        heard ? transcripts(result, outputs, rows) : read_numbers(result, *outputs, manifest_.given, rows);
    outputs += result.outputs.size();
    for (size_t i = 0; i < rows.size(); ++i) {
      values[i]->resize(manifest_.results.size());
      (*values[i])[place] = std::move(found[i]);
    }
  }
}

std::vector<Value> ValueReader::transcripts(const DeclaredResult& result, const Output* outputs,
                                            const Rows& rows) const {
  const Written written(outputs, static_cast<int64_t>(rows.size()), result.beam_size, LONGEST, result.width());
  std::vector<Value> values(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    std::vector<Hypothesis>& found = values[i].hypotheses;
    values[i].kind = result.kind;
    for (int64_t rank = 0; rank < written.ranks(); ++rank) {
      if (written.score(row, rank) <= IMPOSSIBLE) continue;
      Ids tokens = written.tokens(row, rank);
      found.push_back({text(result, tokens), written.score(row, rank), std::move(tokens)});
    }
    if (found.empty()) found.push_back({text(result, {}), 0, {}});
  }
  return values;
}

std::string ValueReader::text(const DeclaredResult& result, const Ids& tokens) const {
  const auto found = tokenizer_.find(result.name);
  if (found == tokenizer_.end()) return "";
  const std::string decoded = found->second->decode(tokens);
  const size_t first = decoded.find_first_not_of(' ');
  return first == std::string::npos ? "" : decoded.substr(first, decoded.find_last_not_of(' ') - first + 1);
}

}  // namespace xformc
