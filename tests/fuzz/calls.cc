// Fuzzes calls of the C API: option structs, texts, ids and arrays, with the engines of the native tests and the fake
// ONNX Runtime. XFORMC_FUZZ_ENGINES is their folder.
#include "../native/check.h"
#include "../native/fake_onnxruntime.h"
#include "harness.h"

namespace {

const Engines& engines() {
  static const Engines loaded(std::getenv("XFORMC_FUZZ_ENGINES"));
  return loaded;
}

xformc_run_options take_run(fuzz::Reader& reader) {
  auto run = run_options();
  const auto set = reader.take<uint8_t>();
  if ((set & 1) != 0) run.workers = reader.take<int64_t>();
  if ((set & 2) != 0) run.max_batch_tokens = reader.take<int64_t>();
  if ((set & 4) != 0) run.window = reader.take<int64_t>();
  if ((set & 8) != 0) run.size = reader.take<uint8_t>();
  run.truncate = (set & 16) != 0;
  return run;
}

// Fields after `size` get bytes of the data; those that cannot have any bytes, truths and pointers, are set later.
template <typename Options>
Options take_options(fuzz::Reader& reader, Options options) {
  auto* bytes = reinterpret_cast<unsigned char*>(&options);
  for (size_t i = sizeof options.size; i < sizeof options; i += 8) {
    const auto chosen = reader.take<uint8_t>();
    if (chosen % 4 == 0) continue;
    const auto value = chosen % 4 == 1 ? int64_t{reader.take<int8_t>()} : reader.take<int64_t>();
    std::memcpy(bytes + i, &value, sizeof value);
  }
  return options;
}

std::vector<std::string> take_texts(fuzz::Reader& reader) {
  std::vector<std::string> texts(reader.take<uint8_t>() % 5);
  for (std::string& text : texts) text = reader.take_text(2000);
  return texts;
}

std::vector<xformc_text> views(const std::vector<std::string>& texts) {
  std::vector<xformc_text> found;
  for (const std::string& text : texts) found.push_back(text_of(text));
  return found;
}

// Tokens by their ids, and by pieces, which must outlive them.
std::vector<xformc_token> take_tokens(fuzz::Reader& reader, const std::vector<std::string>& pieces) {
  std::vector<xformc_token> tokens(reader.take<uint8_t>() % 4);
  for (xformc_token& token : tokens) token = {reader.take<int8_t>(), {nullptr, 0}};
  for (const std::string& piece : pieces) tokens.push_back({0, text_of(piece)});
  return tokens;
}

// A word of docs/search.md, another one, or none.
const char* take_word(fuzz::Reader& reader) {
  static const char* const WORDS[] = {nullptr,  "gnmt",  "average",     "first",   "best", "complete",
                                      "shrink", "paper", "huggingface", "unknown", "",     "\xff"};
  return WORDS[reader.take<uint8_t>() % (sizeof WORDS / sizeof *WORDS)];
}

void read_results(xformc_results* results) {
  for (size_t i = 0; i < xformc_results_count(results); ++i) {
    xformc_hypothesis hypothesis;
    xformc_prediction prediction;
    for (size_t rank = 0; xformc_results_hypothesis(results, i, rank, &hypothesis); ++rank) {
      CHECK(hypothesis.text.data[hypothesis.text.size] == 0);
    }
    if (xformc_results_prediction(results, i, &prediction) && prediction.positions > 0) {
      CHECK(prediction.labels[prediction.positions - 1] >= 0);
    }
  }
  xformc_results_free(results);
}

// Arrays whose shapes are the data's, with memory for what they say, or none.
struct Arrays5 {
  explicit Arrays5(fuzz::Reader& reader) {
    static const char* const NAMES[] = {"words", "sound", "sound_lengths", "age", "links", "sound_mask"};
    const size_t count = reader.take<uint8_t>() % 8;
    shapes.resize(count);
    memory.resize(count);
    for (size_t i = 0; i < count; ++i) {
      shapes[i].resize(reader.take<uint8_t>() % 5);
      int64_t total = 1;
      for (int64_t& size : shapes[i]) {
        const auto chosen = reader.take<int8_t>();
        size = chosen == 127 ? reader.take<int64_t>() : chosen % 8;
        if (__builtin_mul_overflow(total, size, &total)) total = 0;
      }
      if (total > 0 && total < 4096) {
        memory[i].resize(total);
        for (int64_t& value : memory[i]) value = reader.take<int8_t>();
      }
      const size_t name = reader.take<uint8_t>() % 8;
      const int element = reader.take<int8_t>();
      const bool lacks = total >= 4096;
      arrays.push_back({name < 6 ? NAMES[name] : nullptr, XFORMC_INT64, lacks ? nullptr : memory[i].data(),
                        shapes[i].data(), shapes[i].size()});
      std::memcpy(&arrays[i].element, &element, sizeof element);
    }
  }

  std::vector<std::vector<int64_t>> shapes, memory;
  std::vector<xformc_array> arrays;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Reader reader(data, size);
  const auto kind = reader.take<uint8_t>() % 7;
  fake_set(static_cast<fake_mode>(reader.take<uint8_t>() % 16 == 1 ? FAKE_STRANGE_TOKENS : FAKE_HONEST));
  xformc_run_options run = take_run(reader);
  if (run.workers > 4 && run.workers < 2000) run.workers = 4;  // each number of workers keeps a session
  xformc_results* results = nullptr;
  xformc_error* error = nullptr;
  xformc_status status = XFORMC_OK;
  if (kind == 0 || kind == 1) {
    auto search = take_options(reader, search_options());
    if (search.n_best > 64) search.n_best %= 64;  // what the model returns is not what is fuzzed
    const auto texts = take_texts(reader), prefixes = take_texts(reader);
    const auto given = views(texts), begun = views(prefixes);
    search.prefixes = begun.data();
    search.prefix_count = begun.size();
    search.whole_texts = reader.take<uint8_t>() % 2 == 1;
    const auto pieces = take_texts(reader);
    const auto banned = take_tokens(reader, pieces);
    search.suppress_tokens = banned.data();
    search.suppress_count = banned.size();
    search.length_penalty_kind = take_word(reader);
    search.stop_rule = take_word(reader);
    search.preset = take_word(reader);
    if (kind == 0) {
      status = xformc_translate(engines().translation, given.data(), given.size(), &search, &run, &results, &error);
    } else {
      std::vector<int64_t> ids(reader.take<uint8_t>() % 40);
      for (int64_t& id : ids) id = reader.take<int8_t>();
      const size_t rows = 1 + reader.take<uint8_t>() % 4;
      status =
          xformc_search(engines().translation, ids.data(), rows, ids.size() / rows, &search, &run, &results, &error);
    }
  } else if (kind == 2) {
    auto sampling = take_options(reader, sample_options());
    const auto texts = take_texts(reader), pieces = take_texts(reader);
    const auto banned = take_tokens(reader, pieces);
    sampling.suppress_tokens = banned.data();
    sampling.suppress_count = banned.size();
    const auto given = views(texts);
    status = xformc_generate(engines().language_model, given.data(), given.size(), &sampling, &run, &results, &error);
  } else if (kind == 3) {
    const auto texts = take_texts(reader);
    const auto given = views(texts);
    status = xformc_predict(engines().tagging, given.data(), given.size(), &run, &results, &error);
  } else if (kind == 4) {
    const Arrays5 arrays(reader);
    status =
        xformc_predict_arrays(engines().arrays, arrays.arrays.data(), arrays.arrays.size(), &run, &results, &error);
  } else if (kind == 5) {
    size_t count = 0;
    const std::string text(reader.rest());
    std::vector<int64_t> ids(64);
    status = xformc_encode(engines().translation, "source", text_of(text), ids.data(), ids.size(), &count, &error);
  } else {
    std::vector<int64_t> ids(reader.take<uint8_t>());
    for (int64_t& id : ids) id = reader.take<int16_t>();
    std::string text(64, 0);
    size_t bytes = 0;
    status = xformc_decode(engines().translation, "target", ids.data(), ids.size(), text.data(), text.size(), &bytes,
                           &error);
  }
  CHECK(status != XFORMC_INTERNAL_ERROR && status != XFORMC_OUT_OF_MEMORY);
  CHECK(xformc_error_status(error) == status);
  xformc_error_free(error);
  read_results(results);
  return 0;
}
