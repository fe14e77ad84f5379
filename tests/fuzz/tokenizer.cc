// Fuzzes SentencePiece models: what loads must encode and decode every text.
#include "../../runtime/cpp/tokenizer.h"

#include "../../runtime/cpp/failure.h"
#include "harness.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto folder = fuzz::make_folder();
  fuzz::write_file(folder / "tokenizer.model", {reinterpret_cast<const char*>(data), size});
  try {
    const xformc::Vocabulary vocabulary(folder / "tokenizer.model", 1 << 20);
    for (const char* text :
         {"", " ", "one two three", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
          "\xe6\x97\xa5\xe6\x9c\xac \xef\xac\x81 \xc2\xa0\xcc\x81 \xf0\x9f\x98\x80", "<s></s><0x41>"}) {
      vocabulary.decode(vocabulary.encode(text));
      vocabulary.decode(vocabulary.encode_words(text));
    }
    xformc::Ids ids;
    for (int64_t id = -2; id < 300; ++id) ids.push_back(id);
    vocabulary.decode(ids);
  } catch (const xformc::Failure&) {
  }
  return 0;
}
