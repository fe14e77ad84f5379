// Fuzzes engine.json, with the checksum made right: without that nothing behind its check is reached.
#include "../../runtime/cpp/manifest.h"

#include "../../runtime/cpp/document.h"
#include "../../runtime/cpp/failure.h"
#include "harness.h"

namespace {

// Puts the right checksum into data that is a JSON object; other data stays.
std::string with_checksum(std::string_view data) {
  auto fields = xformc::Json::parse(
      data,
      [](int depth, xformc::Json::parse_event_t, xformc::Json&) {
        if (depth > 90) throw std::runtime_error("deep");
        return true;
      },
      false);
  if (!fields.is_object()) return std::string(data);
  fields["checksum"] = xformc::checksum(fields);
  return fields.dump(-1, ' ', true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto folder = fuzz::make_folder();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    fuzz::write_file(folder / "engine.json", with_checksum(text));
  } catch (const std::exception&) {
    fuzz::write_file(folder / "engine.json", text);
  }
  try {
    const xformc::Manifest manifest = xformc::read_manifest(folder);
    xformc::check_files(folder, manifest, true);
  } catch (const xformc::Failure&) {
  }
  return 0;
}
