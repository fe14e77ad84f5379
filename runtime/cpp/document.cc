#include "document.h"

#include <fstream>
#include <map>
#include <set>

#include "failure.h"
#include "numbers.h"
#include "sha256.h"
#include "unicode.h"

namespace xformc {
namespace {

constexpr const char* DAMAGED =
    "the file is damaged or was not written by xformc: copy the engine again, or rebuild it with `xformc build`";
constexpr int DEEPEST = 100;
constexpr int MOST_KEYS = 5'000;
constexpr size_t SHOWN = 60;  // characters of a value in a message

// Appends JSON as Python's json.dumps writes it, compact and sorted by key. nlohmann_json's own text of a number is longer
// than Python's for about 1 in 1,000 numbers of many digits.
void append(const Json& value, std::string& text) {
  const auto separate = [&, first = text.size() + 1] { text += text.size() == first ? "" : ","; };
  if (value.is_object()) {
    std::map<std::string, const Json*> sorted;
    for (const auto& [key, item] : value.items()) sorted[key] = &item;
    text += '{';
    for (const auto& [key, item] : sorted) {
      separate();
      text += Json(key).dump(-1, ' ', true) + ':';
      append(*item, text);
    }
    text += '}';
  } else if (value.is_array()) {
    text += '[';
    for (const Json& item : value) {
      separate();
      append(item, text);
    }
    text += ']';
  } else {
    text += value.is_number_float() ? shortest(value) : value.dump(-1, ' ', true);
  }
}

// Ends the parsing of a document that takes too much of the stack to copy, or too long to read: the keys of an object
// are searched one by one.
Json::parser_callback_t check_size(const std::string& place) {
  return [place, keys = 0](int depth, Json::parse_event_t event, Json&) mutable {
    if (event == Json::parse_event_t::key) ++keys;
    if (depth <= DEEPEST && keys <= MOST_KEYS) return true;
    const std::string limit = depth > DEEPEST ? std::to_string(DEEPEST) + " levels" : grouped(MOST_KEYS) + " keys";
    throw invalid_engine("not JSON of an engine: more than " + limit, place, DAMAGED);
  };
}

}  // namespace

std::vector<std::string> Document::keys() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : fields_.items()) names.push_back(name);
  return names;
}

std::string Document::text(const std::string& key, const std::vector<std::string>& choices) const {
  const Json& value = get(key);
  const bool fits = value.is_string() && is_printable(value.get_ref<const std::string&>());
  if (!fits || (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end())) {
    wrong(key, choices.empty() ? "a printable string" : joined(choices, " or "));
  }
  return value;
}

std::vector<std::string> Document::texts(const std::string& key) const {
  const Json& value = get(key);
  std::vector<std::string> found;
  for (const Json& item : value.is_array() ? value : Json::array()) {
    if (item.is_string() && is_printable(item.get_ref<const std::string&>())) found.push_back(item);
  }
  if (found.empty() || std::set<std::string>(found.begin(), found.end()).size() < value.size()) {
    wrong(key, "a list of distinct strings");
  }
  return found;
}

int64_t Document::integer(const std::string& key, int64_t low, int64_t high) const {
  const Json& value = get(key);
  const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= INT64_MAX : value.is_number_integer();
  if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > high) {
    wrong(key, "an integer from " + grouped(low) + " to " + grouped(high));
  }
  return value;
}

std::vector<int64_t> Document::integers(const std::string& key, size_t count) const {
  const Json& value = get(key);
  std::vector<int64_t> sizes;
  for (const Json& item : value.is_array() ? value : Json::array()) {
    if (item.is_number_integer() && item >= 1 && item <= INT64_MAX) sizes.push_back(item);
  }
  if (sizes.size() != count || value.size() != count) {
    wrong(key, "a list of " + std::to_string(count) + " integers, each 1 or more");
  }
  return sizes;
}

std::vector<int64_t> Document::ids(const std::string& key, size_t most, int64_t size, size_t least) const {
  const Json& value = get(key);
  std::vector<int64_t> found;
  for (const Json& item : value.is_array() ? value : Json::array()) {
    if (item.is_number_integer() && item >= 0 && item < size) found.push_back(item);
  }
  const size_t distinct = std::set<int64_t>(found.begin(), found.end()).size();
  if (!value.is_array() || value.size() < least || value.size() > most || distinct != value.size()) {
    wrong(key, "a list of " + std::to_string(least) + " to " + std::to_string(most) + " distinct integers from 0 to " +
                   grouped(size - 1));
  }
  return found;
}

bool Document::boolean(const std::string& key) const {
  const Json& value = get(key);
  if (!value.is_boolean()) wrong(key, "true or false");
  return value;
}

double Document::number(const std::string& key, double low, double high) const {
  const Json& value = get(key);
  if (!value.is_number() || !(value >= low && value <= high)) {
    wrong(key, "a number from " + rough(low) + " to " + rough(high));
  }
  return value;
}

Document Document::section(const std::string& key) const {
  const Json& value = get(key);
  if (!value.is_object()) wrong(key, "an object");
  return {place_, value, path_ + key + "."};
}

const Json& Document::get(const std::string& key) const {
  const auto found = fields_.find(key);
  if (found == fields_.end()) throw invalid_engine("the key " + path_ + key + " is missing", place_, DAMAGED);
  return *found;
}

void Document::wrong(const std::string& key, const std::string& required) const {
  const std::string shown = get(key).dump(-1, ' ', true);
  const std::string value = shown.size() <= SHOWN ? shown : shown.substr(0, SHOWN) + "...";
  throw invalid_engine(path_ + key + " must be " + required + ", not " + value, place_, DAMAGED);
}

Document read_document(const std::filesystem::path& path, size_t limit) {
  std::ifstream file(path, std::ios::binary);
  std::string data(limit + 1, '\0');
  file.read(data.data(), static_cast<std::streamsize>(data.size()));
  data.resize(static_cast<size_t>(file.gcount()));
  if (file.bad() || !file.is_open()) throw invalid_engine("cannot be read", path.string(), DAMAGED);
  if (data.size() > limit) {
    throw invalid_engine("larger than " + grouped(static_cast<int64_t>(limit)) + " bytes", path.string(), DAMAGED);
  }
  const Json fields = Json::parse(data, check_size(path.string()), false);
  if (fields.is_discarded()) throw invalid_engine("not JSON", path.string(), DAMAGED);
  if (!fields.is_object()) throw invalid_engine("not a JSON object", path.string(), DAMAGED);
  return {path.string(), fields};
}

std::string checksum(const Json& fields) {
  Json rest = fields;
  rest.erase("checksum");
  std::string text;
  append(rest, text);
  return sha256(text);
}

}  // namespace xformc
