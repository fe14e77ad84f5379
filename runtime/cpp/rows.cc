#include "rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "failure.h"
#include "numbers.h"

namespace xformc {
namespace {

using Arrays = std::map<std::string, const xformc_array*>;

template <typename Value>
void feed(Batch& batch, std::vector<std::vector<Value>>& kept, ONNXTensorElementDataType element, std::string name,
          std::vector<Value> values, std::vector<int64_t> shape) {
  kept.push_back(std::move(values));
  batch.feeds.push_back({std::move(name), element, kept.back().data(), std::move(shape)});
}

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t result = 1;
  for (const int64_t size : sizes) result *= size;
  return result;
}

std::vector<int64_t> sizes_of(const Input& input) {
  std::vector<int64_t> sizes;
  for (const auto& axis : input.axes) sizes.push_back(axis.second);
  return sizes;
}

std::string listed(const int64_t* sizes, size_t count) {
  std::vector<std::string> words;
  for (size_t i = 0; i < count; ++i) words.push_back(std::to_string(sizes[i]));
  return "[" + joined(words) + "]";
}

std::string element_name(xformc_element element) {
  return element == XFORMC_FLOAT32 ? "float32" : element == XFORMC_INT64 ? "int64" : "bool";
}

// Whether an input has a mask beside it, because it is vectors with positions of their own.
bool has_mask(const Input& input) { return input.kind == Kind::vectors && input.has_positions(); }

// The names of the arrays of these inputs, the lengths of vectors after all inputs.
std::vector<std::string> wanted_names(const std::vector<Input>& inputs) {
  std::vector<std::string> names;
  for (const Input& input : inputs) names.push_back(input.name);
  for (const Input& input : inputs) {
    if (has_mask(input)) names.push_back(input.name + "_lengths");
  }
  return names;
}

Arrays found_arrays(const std::vector<std::string>& wanted, const xformc_array* arrays, size_t count) {
  Arrays found;
  std::vector<std::string> missing, strange;
  for (size_t i = 0; i < count; ++i) {
    const xformc_array& array = arrays[i];
    if (array.name == nullptr || (array.rank > 0 && array.shape == nullptr)) {
      throw invalid_argument("the name or the shape of array " + std::to_string(i) + " is NULL");
    }
    int element = 0;  // of a C program, which may hold anything
    std::memcpy(&element, &array.element, sizeof element);
    if (element != XFORMC_FLOAT32 && element != XFORMC_INT64 && element != XFORMC_BOOL) {
      throw invalid_argument(std::string("the element of ") + array.name + " is not one of xformc_element");
    }
    if (!found.emplace(array.name, &array).second) {
      throw invalid_argument(std::string("the array ") + array.name + " is given twice");
    }
    if (std::find(wanted.begin(), wanted.end(), array.name) == wanted.end()) strange.emplace_back(array.name);
  }
  for (const std::string& name : wanted) {
    if (found.count(name) == 0) missing.push_back(name);
  }
  if (missing.empty() && strange.empty()) return found;
  std::string problem = missing.empty() ? "" : "lack " + joined(missing);
  if (!strange.empty()) problem += (problem.empty() ? "have " : " and have ") + joined(strange);
  throw invalid_argument("the arrays " + problem, "", "the inputs are " + joined(wanted));
}

// Checks the element type and the shape, so that the number of elements fits memory that the caller has.
void check_shape(const Input& input, const xformc_array& array) {
  const std::vector<int64_t> sizes = sizes_of(input);
  std::vector<std::string> axes{"rows"};
  if (input.kind == Kind::tokens || input.kind == Kind::vectors) axes.push_back(input.name);
  if (input.kind == Kind::edges) axes.insert(axes.end(), 2, input.of);
  for (const int64_t size : sizes) axes.push_back(std::to_string(size));
  const bool integers = array.element == XFORMC_INT64, floats = array.element == XFORMC_FLOAT32;
  const bool edges = input.kind == Kind::edges;
  const bool type = input.kind == Kind::tokens ? integers : edges ? array.element == XFORMC_BOOL : integers || floats;
  bool fits = type && array.rank == axes.size();
  for (size_t i = 0; fits && i < array.rank; ++i) fits = array.shape[i] >= 0;
  for (size_t i = 0; fits && i < sizes.size(); ++i) {
    fits = array.shape[array.rank - sizes.size() + i] == sizes[i];
  }
  int64_t count = 1;
  for (size_t i = 0; fits && i < array.rank; ++i) fits = !__builtin_mul_overflow(count, array.shape[i], &count);
  fits = fits && count <= static_cast<int64_t>(PTRDIFF_MAX / sizeof(int64_t));
  if (fits && (array.data != nullptr || count == 0)) return;
  const char* what = input.kind == Kind::tokens ? "integers" : edges ? "true or false" : "numbers";
  throw invalid_argument(input.name + " must be " + what + " of shape [" + joined(axes) + "], not " +
                         element_name(array.element) + " of " + listed(array.shape, array.rank));
}

int64_t count_of(const xformc_array& array) {
  int64_t count = 1;
  for (size_t i = 0; i < array.rank; ++i) count *= array.shape[i];
  return count;
}

void check_values(const Input& input, const xformc_array& array) {
  const int64_t count = count_of(array);
  if (input.kind == Kind::tokens) {
    const auto* ids = static_cast<const int64_t*>(array.data);
    if (std::any_of(ids, ids + count, [&](int64_t id) { return id < 0 || id >= input.vocabulary; })) {
      throw invalid_argument("the ids of " + input.name + " must be from 0 to " + std::to_string(input.vocabulary - 1) +
                             "; one of them is not");
    }
  } else if (array.element == XFORMC_FLOAT32) {
    const auto* numbers = static_cast<const float*>(array.data);
    if (!std::all_of(numbers, numbers + count, [](float number) { return std::isfinite(number); })) {
      throw invalid_argument(input.name + " must be finite numbers; one of them is not");
    }
  }
}

void check_lengths_shape(const std::string& name, const xformc_array& lengths) {
  if (lengths.element != XFORMC_INT64 || lengths.rank != 1 || lengths.shape[0] < 0 ||
      (lengths.data == nullptr && lengths.shape[0] > 0)) {
    throw invalid_argument(name + " must be integers of shape [rows], not " + element_name(lengths.element) + " of " +
                           listed(lengths.shape, lengths.rank));
  }
}

void check_lengths(const std::string& name, const xformc_array& lengths, int64_t longest) {
  const auto* values = static_cast<const int64_t*>(lengths.data);
  if (std::any_of(values, values + lengths.shape[0], [=](int64_t n) { return n < 1 || n > longest; })) {
    throw invalid_argument(name + " must be from 1 to " + std::to_string(longest) + "; one of them is not");
  }
}

// The number of rows, which all arrays must have.
int64_t check_counts(const std::vector<std::string>& wanted, const Arrays& found) {
  std::vector<std::string> counts;
  bool same = true;
  const int64_t first = found.at(wanted[0])->shape[0];
  for (const std::string& name : wanted) {
    const int64_t count = found.at(name)->shape[0];
    counts.push_back(name + " " + std::to_string(count));
    same = same && count == first;
  }
  if (!same) throw invalid_argument("the arrays must have the same number of rows, not " + joined(counts));
  return first;
}

// The tokens of a row before its padding.
int64_t filled(const Input& input, const int64_t* ids, int64_t width, int64_t row) {
  const int64_t fill = input.special.fill(), length = std::find(ids, ids + width, fill) - ids;
  if (length == 0 || std::any_of(ids + length, ids + width, [=](int64_t id) { return id != fill; })) {
    throw invalid_argument("row " + std::to_string(row) + " of " + input.name +
                           " must be one or more tokens, then padding (" + std::to_string(fill) + ") only");
  }
  return length;
}

std::vector<float> numbers_of(const xformc_array& array, int64_t first, int64_t count) {
  if (array.element == XFORMC_FLOAT32) {
    const auto* numbers = static_cast<const float*>(array.data) + first;
    return {numbers, numbers + count};
  }
  const auto* numbers = static_cast<const int64_t*>(array.data) + first;
  return {numbers, numbers + count};
}

Field read_edges(const std::string& name, const xformc_array& array, int64_t positions, int64_t row) {
  const int64_t across = array.shape[1], down = array.shape[2];
  if (across < positions || across != down) {
    throw invalid_argument("row " + std::to_string(row) + " of " + name + " has shape " + listed(array.shape + 1, 2) +
                           " for " + std::to_string(positions) + " positions");
  }
  Field field;
  field.positions = positions;
  const auto* edges = static_cast<const unsigned char*>(array.data) + row * across * across;
  for (int64_t i = 0; i < positions; ++i) {
    for (int64_t j = 0; j < positions; ++j) field.numbers.push_back(edges[i * across + j] != 0 ? 1.0F : 0.0F);
  }
  return field;
}

int64_t positions_of(const Input& input, const Arrays& found, int64_t row) {
  const xformc_array& array = *found.at(input.name);
  int64_t length = 0;
  if (input.kind == Kind::tokens) {
    const int64_t width = array.shape[1];
    length = filled(input, static_cast<const int64_t*>(array.data) + row * width, width, row);
  } else {
    length = static_cast<const int64_t*>(found.at(input.name + "_lengths")->data)[row];
  }
  if (input.longest && length > *input.longest) {
    throw invalid_argument("row " + std::to_string(row) + " of " + input.name + " has " + grouped(length) +
                           " positions; this engine takes at most " + grouped(*input.longest));
  }
  return length;
}

// Checks the length of an input along another one, which has `wanted` positions.
void check_along(const Input& input, int64_t length, int64_t wanted, int64_t row) {
  if (length == wanted || (length > wanted && input.kind == Kind::vectors)) return;
  throw invalid_argument("row " + std::to_string(row) + " of " + input.name + " has " + grouped(length) +
                         " positions, and " + input.of + " has " + grouped(wanted));
}

Row read_row(const std::vector<Input>& inputs, const Arrays& found, int64_t row) {
  std::map<std::string, int64_t> positions;
  for (const Input& input : inputs) {
    if (input.kind == Kind::tokens || has_mask(input)) positions[input.name] = positions_of(input, found, row);
  }
  for (const Input& input : inputs) {
    if (input.of.empty() || input.kind == Kind::edges) continue;
    const auto known = positions.find(input.name);
    const int64_t length = known == positions.end() ? found.at(input.name)->shape[1] : known->second;
    check_along(input, length, positions[input.of], row);
    positions[input.name] = positions[input.of];
  }
  Row result;
  for (const Input& input : inputs) {
    const xformc_array& array = *found.at(input.name);
    const int64_t size = product(sizes_of(input));
    Field field;
    if (input.kind == Kind::edges) {
      field = read_edges(input.name, array, positions[input.of], row);
    } else if (input.kind == Kind::tokens) {
      const auto* ids = static_cast<const int64_t*>(array.data) + row * array.shape[1];
      field.positions = positions[input.name];
      field.ids.assign(ids, ids + field.positions);
    } else if (input.kind == Kind::vectors) {
      field.positions = positions[input.name];
      field.numbers = numbers_of(array, row * array.shape[1] * size, field.positions * size);
    } else {
      field.numbers = numbers_of(array, row * size, size);
    }
    result.fields.push_back(std::move(field));
  }
  return result;
}

}  // namespace

int64_t Row::longest() const {
  int64_t most = 0;
  for (const Field& field : fields) most = std::max(most, field.positions);
  return most;
}

void Batch::add(std::string name, std::vector<int64_t> values, std::vector<int64_t> shape) {
  feed(*this, integers, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, std::move(name), std::move(values), std::move(shape));
}

void Batch::add(std::string name, std::vector<float> values, std::vector<int64_t> shape) {
  feed(*this, floats, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, std::move(name), std::move(values), std::move(shape));
}

void Batch::add(std::string name, std::vector<char> values, std::vector<int64_t> shape) {
  feed(*this, booleans, ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, std::move(name), std::move(values), std::move(shape));
}

void add_sampling(Batch& batch, const SampleOptions& options, std::vector<int64_t> seeds) {
  const auto count = static_cast<int64_t>(seeds.size());
  batch.add("seed", std::move(seeds), {count});
  batch.add("max_new_tokens", std::vector<int64_t>{options.max_new_tokens}, {});
  batch.add("temperature", std::vector<float>{static_cast<float>(options.temperature)}, {});
  batch.add("top_k", std::vector<int64_t>{options.top_k}, {});
  batch.add("top_p", std::vector<float>{static_cast<float>(options.top_p)}, {});
}

void stack(Batch& batch, const std::string& name, const Input& input, size_t index, const Rows& rows, int64_t fill) {
  const auto count = static_cast<int64_t>(rows.size());
  int64_t longest = 0;
  for (const Row* row : rows) longest = std::max(longest, row->fields[index].positions);
  if (input.kind == Kind::tokens) {
    std::vector<int64_t> ids(rows.size() * longest, fill);
    for (int64_t i = 0; i < count; ++i) {
      std::copy(rows[i]->fields[index].ids.begin(), rows[i]->fields[index].ids.end(), ids.begin() + i * longest);
    }
    return batch.add(name, std::move(ids), {count, longest});
  }
  if (input.kind == Kind::edges) {
    std::vector<char> edges(rows.size() * longest * longest, 0);
    for (int64_t i = 0; i < count; ++i) {
      const Field& field = rows[i]->fields[index];
      for (int64_t j = 0; j < field.positions * field.positions; ++j) {
        edges[(i * longest + j / field.positions) * longest + j % field.positions] = field.numbers[j] != 0 ? 1 : 0;
      }
    }
    return batch.add(name, std::move(edges), {count, longest, longest});
  }
  std::vector<int64_t> shape = sizes_of(input);
  const int64_t size = product(shape) * (input.kind == Kind::vectors ? longest : 1);
  std::vector<float> numbers(rows.size() * size, 0);
  for (int64_t i = 0; i < count; ++i) {
    std::copy(rows[i]->fields[index].numbers.begin(), rows[i]->fields[index].numbers.end(), numbers.begin() + i * size);
  }
  if (input.kind == Kind::vectors) shape.insert(shape.begin(), longest);
  shape.insert(shape.begin(), count);
  batch.add(name, std::move(numbers), std::move(shape));
  if (!has_mask(input)) return;
  std::vector<char> mask(rows.size() * longest, 0);
  for (int64_t i = 0; i < count; ++i) {
    std::fill_n(mask.begin() + i * longest, rows[i]->fields[index].positions, 1);
  }
  batch.add(name + "_mask", std::move(mask), {count, longest});
}

std::vector<Row> read_rows(const std::vector<Input>& inputs, const xformc_array* arrays, size_t count) {
  const std::vector<std::string> wanted = wanted_names(inputs);
  const Arrays found = found_arrays(wanted, arrays, count);
  for (const Input& input : inputs) {
    const xformc_array& array = *found.at(input.name);
    check_shape(input, array);
    const std::string lengths = input.name + "_lengths";
    if (has_mask(input)) check_lengths_shape(lengths, *found.at(lengths));
  }
  const int64_t rows = check_counts(wanted, found);
  for (const Input& input : inputs) {
    const xformc_array& array = *found.at(input.name);
    check_values(input, array);
    const std::string lengths = input.name + "_lengths";
    if (has_mask(input)) check_lengths(lengths, *found.at(lengths), array.shape[1]);
  }
  std::vector<Row> result;
  for (int64_t row = 0; row < rows; ++row) {
    result.push_back(read_row(inputs, found, row));
    result.back().seed = row;
  }
  return result;
}

}  // namespace xformc
