// Translates text with CTranslate2's C++ library and SentencePiece. For what it reads and writes, see program.h.
#include <ctranslate2/translator.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "program.h"

namespace {

// Calls `work` for each index below `count`, from several threads.
void for_each(size_t count, size_t threads, const std::function<void(size_t)>& work) {
  std::vector<std::thread> others;
  for (size_t thread = 0; thread < threads; ++thread)
    others.emplace_back([=] {
      for (size_t index = thread; index < count; index += threads) work(index);
    });
  for (std::thread& other : others) other.join();
}

ctranslate2::models::ModelLoader loader(const Options& options) {
  ctranslate2::models::ModelLoader found(options.text("model"));
  found.compute_type = ctranslate2::str_to_compute_type(options.text("precision"));
  found.num_replicas_per_device = options.number("workers");
  return found;
}

ctranslate2::ReplicaPoolConfig config(const Options& options) {
  ctranslate2::ReplicaPoolConfig found;
  found.num_threads_per_replica = std::max(1L, options.number("threads") / options.number("workers"));
  return found;
}

class Translator {
 public:
  explicit Translator(const Options& options)
      : threads_(options.number("threads")), batch_tokens_(options.number("batch_tokens")),
        model_(loader(options), config(options)) {
    const auto status = pieces_.Load(options.text("tokenizer"));
    if (!status.ok()) throw std::runtime_error(status.ToString());
    search_.beam_size = options.number("beam");
    search_.length_penalty = static_cast<float>(options.real("length_penalty"));
    search_.max_decoding_length = options.number("length");
  }

  Lines translate(const Lines& lines) {
    std::vector<std::vector<std::string>> source(lines.size());
    const size_t threads = std::min(threads_, lines.size());
    for_each(lines.size(), threads, [&](size_t index) {
      pieces_.Encode(lines[index], &source[index]);
      source[index].push_back("</s>");
    });
    const auto found = model_.translate_batch(source, search_, batch_tokens_, ctranslate2::BatchType::Tokens);
    Lines translated(lines.size());
    for_each(lines.size(), threads,
             [&](size_t index) { pieces_.Decode(found[index].hypotheses[0], &translated[index]); });
    return translated;
  }

 private:
  size_t threads_, batch_tokens_;
  ctranslate2::Translator model_;
  sentencepiece::SentencePieceProcessor pieces_;
  ctranslate2::TranslationOptions search_;
};

}  // namespace

int main(int count, char** arguments) { return answer_requests<Translator>(count, arguments); }
