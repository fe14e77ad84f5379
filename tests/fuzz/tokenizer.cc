// Fuzzes SentencePiece models and tokenizer.json files: what loads must encode and decode every text.
#include "../../runtime/cpp/failure.h"
#include "../../runtime/cpp/json_vocabulary.h"
#include "../../runtime/cpp/sentencepiece_vocabulary.h"
#include "../../runtime/cpp/words.h"
#include "harness.h"

namespace {

void use(const xformc::Vocabulary& vocabulary) {
  for (const char* text :
       {"", " ", "one two three", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "\xe6\x97\xa5\xe6\x9c\xac \xef\xac\x81 \xc2\xa0\xcc\x81 \xf0\x9f\x98\x80", "<s></s><0x41>",
        "don't 12\r\n  'S x"}) {
    vocabulary.decode(vocabulary.encode(text));
    vocabulary.decode(vocabulary.encode_words(text));
    xformc::read_words(vocabulary, text, 1 << 20);
  }
  xformc::Ids ids;
  for (int64_t id = -2; id < 300; ++id) {
    ids.push_back(id);
    vocabulary.piece(id);
  }
  vocabulary.decode(ids);
}

}  // namespace

// Files that begin with a brace are JSON, which no SentencePiece model of real pieces does.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto folder = fuzz::make_folder();
  const bool json = size > 0 && data[0] == '{';
  const auto path = folder / (json ? "tokenizer.json" : "tokenizer.model");
  fuzz::write_file(path, {reinterpret_cast<const char*>(data), size});
  try {
    if (json) {
      use(xformc::JsonVocabulary(path, 1 << 20, {}));
    } else {
      use(xformc::SentencePieceVocabulary(path, 1 << 20));
    }
  } catch (const xformc::Failure&) {
  } catch (const xformc::Unsupported&) {
  }
  return 0;
}
