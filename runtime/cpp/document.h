// Reads untrusted JSON: every value is read with its required type and range.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace xformc {

using Json = nlohmann::ordered_json;

// A JSON object at `path` in the file `place`. Every function returns a checked value or throws Failure.
class Document {
 public:
  Document(std::string place, Json fields, std::string path = "")
      : place_(std::move(place)), fields_(std::move(fields)), path_(std::move(path)) {}

  const std::string& place() const { return place_; }
  const std::string& path() const { return path_; }
  const Json& fields() const { return fields_; }
  bool has(const std::string& key) const { return fields_.contains(key); }
  bool is_null(const std::string& key) const { return get(key).is_null(); }
  std::vector<std::string> keys() const;

  // A printable string, one of `choices` if there are any.
  std::string text(const std::string& key, const std::vector<std::string>& choices = {}) const;
  // A list of one or more distinct printable strings.
  std::vector<std::string> texts(const std::string& key) const;
  int64_t integer(const std::string& key, int64_t low, int64_t high = int64_t{1} << 62) const;
  // A list of `count` integers, each 1 or more.
  std::vector<int64_t> integers(const std::string& key, size_t count) const;
  // A list of `least` to `most` distinct integers from 0 to `size` - 1.
  std::vector<int64_t> ids(const std::string& key, size_t most, int64_t size, size_t least = 1) const;
  bool boolean(const std::string& key) const;
  double number(const std::string& key, double low, double high) const;
  Document section(const std::string& key) const;

 private:
  const Json& get(const std::string& key) const;
  [[noreturn]] void wrong(const std::string& key, const std::string& required) const;

  std::string place_;
  Json fields_;
  std::string path_;
};

// The JSON object in a file of at most `limit` bytes. Throws Failure if it is larger or not one JSON object.
Document read_document(const std::filesystem::path& path, size_t limit);

// The value of `checksum` in engine.json: the sha256 of its other keys as sorted compact JSON.
std::string checksum(const Json& fields);

}  // namespace xformc
