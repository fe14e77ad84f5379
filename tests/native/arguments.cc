// Every function of the C API with arguments that are wrong: an error that says so, and nothing worse.
// arguments FOLDER
#include <cfenv>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "check.h"
#include "fake_onnxruntime.h"

namespace {

constexpr xformc_status INVALID = XFORMC_INVALID_ARGUMENT;
constexpr size_t HUGE_COUNT = SIZE_MAX / 2;

void check_nothing_given() {
  CHECK(xformc_error_status(nullptr) == XFORMC_OK && *xformc_error_message(nullptr) == 0);
  CHECK(*xformc_error_place(nullptr) == 0 && *xformc_error_hint(nullptr) == 0);
  xformc_error_free(nullptr);
  xformc_engine_free(nullptr);
  xformc_cancel_free(nullptr);
  xformc_cancel_now(nullptr);
  xformc_results_free(nullptr);
  xformc_load_options_init(nullptr, 64);
  xformc_run_options_init(nullptr, 64);
  xformc_search_options_init(nullptr, 64);
  xformc_sample_options_init(nullptr, 64);
  CHECK(xformc_results_count(nullptr) == 0 && xformc_results_hypothesis_count(nullptr, 0) == 0);
  CHECK(!xformc_results_hypothesis(nullptr, 0, 0, nullptr) && !xformc_results_prediction(nullptr, 0, nullptr));
  CHECK(*xformc_engine_name(nullptr) == 0 && *xformc_engine_task(nullptr) == 0);
  CHECK(*xformc_engine_target(nullptr) == 0 && *xformc_engine_precision(nullptr) == 0);
  CHECK(*xformc_engine_onnxruntime(nullptr) == 0);
  xformc_input input;
  CHECK(xformc_engine_input_count(nullptr) == 0 && !xformc_engine_input(nullptr, 0, &input));
  CHECK(xformc_engine_label_count(nullptr) == 0 && xformc_engine_label(nullptr, 0) == nullptr);
  CHECK(xformc_engine_given_input_count(nullptr) == 0 && !xformc_engine_given_input(nullptr, 0, &input));
  CHECK(xformc_engine_result_count(nullptr) == 0 && !xformc_engine_result(nullptr, 0, nullptr));
  CHECK(xformc_engine_given_input_rate(nullptr, 0) == 0 && xformc_results_transcript_count(nullptr, 0, 0) == 0);
  CHECK(!xformc_results_transcript(nullptr, 0, 0, 0, nullptr));
  CHECK(xformc_engine_result_label(nullptr, 0, 0) == nullptr && !xformc_results_value(nullptr, 0, 0, nullptr));
  xformc_search_options search;
  xformc_search_options_init(&search, sizeof search);
  CHECK(!xformc_engine_search_options(nullptr, &search) && search.beam_size == XFORMC_DEFAULT);
  xformc_sample_options sampling;
  xformc_sample_options_init(&sampling, sizeof sampling);
  CHECK(!xformc_engine_sample_options(nullptr, &sampling) && sampling.top_k == XFORMC_DEFAULT);
}

void check_load(const std::string& folder) {
  xformc_engine* engine = nullptr;
  CHECK_STATUS(INVALID, xformc_load(nullptr, nullptr, &engine, &error));
  CHECK_STATUS(INVALID, xformc_load(folder.c_str(), nullptr, nullptr, &error));
  CHECK(xformc_load(nullptr, nullptr, nullptr, nullptr) == INVALID);
  for (const char* none : {"", "/", "/dev/null", "/dev/full", "/proc/self/mem", "\xff\xfe", "no such folder"}) {
    CHECK_STATUS(XFORMC_INVALID_ENGINE, xformc_load(none, nullptr, &engine, &error));
  }
  CHECK_STATUS(XFORMC_INVALID_ENGINE, xformc_load(std::string(1 << 20, 'x').c_str(), nullptr, &engine, &error));
  auto options = load_options();
  for (const char* library : {"", "/", "/dev/null", "no such file", "\xff"}) {
    options.onnxruntime = library;
    if (*library != 0) {
      CHECK_STATUS(XFORMC_INVALID_ENGINE, xformc_load((folder + "/tagging").c_str(), &options, &engine, &error));
    }
  }
  for (const int64_t count : {INT64_MIN + 1, int64_t{-1}, int64_t{0}, int64_t{1025}, INT64_MAX}) {
    options = load_options();
    options.threads = count;
    CHECK_STATUS(INVALID, xformc_load((folder + "/tagging").c_str(), &options, &engine, &error));
    options = load_options();
    options.workers = count;
    CHECK_STATUS(INVALID, xformc_load((folder + "/tagging").c_str(), &options, &engine, &error));
  }
  CHECK(engine == nullptr);
}

// The caller's rounding mode changes no hash of an engine, and stays as it was.
void check_floats(const std::string& folder) {
  const auto options = load_options();
  xformc_engine* engine = nullptr;
  CHECK(std::fesetround(FE_UPWARD) == 0);
  CHECK_STATUS(XFORMC_OK, xformc_load((folder + "/tagging").c_str(), &options, &engine, &error));
  CHECK(std::fegetround() == FE_UPWARD && std::fesetround(FE_TONEAREST) == 0);
  xformc_engine_free(engine);
}

// A size of the struct that no version of the library has had.
void check_sizes(const Engines& engines) {
  const auto texts = texts_of({"one two"});
  auto run = run_options();
  auto search = search_options();
  auto sampling = sample_options();
  xformc_results* results = nullptr;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{12}, sizeof run - 1, sizeof run + 1,
                            sizeof search + 8, SIZE_MAX}) {
    run.size = search.size = sampling.size = size;
    CHECK_STATUS(INVALID, xformc_translate(engines.translation, texts.data(), 1, nullptr, &run, &results, &error));
    CHECK_STATUS(INVALID, xformc_predict(engines.tagging, texts.data(), 1, &run, &results, &error));
    CHECK_STATUS(INVALID, xformc_translate(engines.translation, texts.data(), 1, &search, nullptr, &results, &error));
    CHECK_STATUS(INVALID,
                 xformc_generate(engines.language_model, texts.data(), 1, &sampling, nullptr, &results, &error));
  }
  run.size = sizeof run;
  search = search_options();
  sampling = sample_options();
  search.size = offsetof(xformc_search_options, suppress_tokens);  // of older headers, whose structs end there
  sampling.size = offsetof(xformc_sample_options, suppress_tokens);
  search.suppress_count = sampling.suppress_count = SIZE_MAX;
  CHECK_STATUS(XFORMC_OK, xformc_translate(engines.translation, texts.data(), 1, &search, &run, &results, &error));
  xformc_results_free(results);
  CHECK_STATUS(XFORMC_OK, xformc_generate(engines.language_model, texts.data(), 1, &sampling, &run, &results, &error));
  xformc_results_free(results);
  unsigned char bytes[256];
  for (size_t size = 0; size < sizeof bytes; ++size) {  // an init function writes `size` bytes, or none
    std::memset(bytes, 0xaa, sizeof bytes);
    xformc_run_options_init(reinterpret_cast<xformc_run_options*>(bytes), size);
    for (size_t i = size < sizeof size ? 0 : size; i < sizeof bytes; ++i) CHECK(bytes[i] == 0xaa);
  }
}

void check_options(const Engines& engines) {
  const auto texts = texts_of({"one two"});
  xformc_results* results = nullptr;
  const auto translating = [&](const xformc_search_options* search, const xformc_run_options* run) {
    CHECK_STATUS(INVALID, xformc_translate(engines.translation, texts.data(), 1, search, run, &results, &error));
  };
  const auto generating = [&](const xformc_sample_options& sampling) {
    CHECK_STATUS(INVALID,
                 xformc_generate(engines.language_model, texts.data(), 1, &sampling, nullptr, &results, &error));
  };
  for (int64_t xformc_search_options::* field :
       {&xformc_search_options::beam_size, &xformc_search_options::n_best, &xformc_search_options::max_length_offset}) {
    for (const int64_t value : {INT64_MIN + 1, int64_t{-1}, int64_t{1} << 40, INT64_MAX}) {
      auto search = search_options();
      search.*field = value;
      translating(&search, nullptr);
    }
  }
  for (double xformc_search_options::* field :
       {&xformc_search_options::length_penalty, &xformc_search_options::max_length_factor}) {
    for (const double value : {-1e308, 1e308, double{INFINITY}, -double{INFINITY}, 100.1}) {
      auto search = search_options();
      search.*field = value;
      translating(&search, nullptr);
    }
  }
  auto scoring = search_options();
  scoring.whole_texts = true;  // of no prefixes
  translating(&scoring, nullptr);
  const auto prefixes = texts_of({"one", "two"});
  scoring.prefixes = prefixes.data();
  scoring.prefix_count = 2;  // of one text
  translating(&scoring, nullptr);
  for (int64_t xformc_run_options::* field :
       {&xformc_run_options::workers, &xformc_run_options::max_batch_tokens, &xformc_run_options::window}) {
    for (const int64_t value : {INT64_MIN + 1, int64_t{-1}, int64_t{0}}) {
      auto run = run_options();
      run.*field = value;
      translating(nullptr, &run);
    }
  }
  auto run = run_options();
  run.workers = INT64_MAX;
  translating(nullptr, &run);
  for (int64_t xformc_sample_options::* field :
       {&xformc_sample_options::seed, &xformc_sample_options::top_k, &xformc_sample_options::max_new_tokens}) {
    for (const int64_t value : {INT64_MIN + 1, int64_t{-1}, INT64_MAX}) {
      auto sampling = sample_options();
      sampling.*field = value;
      generating(sampling);
    }
  }
  for (double xformc_sample_options::* field : {&xformc_sample_options::temperature, &xformc_sample_options::top_p}) {
    for (const double value : {-1e-300, 1e308, double{INFINITY}}) {
      auto sampling = sample_options();
      sampling.*field = value;
      generating(sampling);
    }
  }
  CHECK(results == nullptr);
}

// The largest values that are allowed.
void check_extremes(const Engines& engines) {
  const auto texts = texts_of({"one two", "", "three"});
  auto run = run_options();
  run.workers = 1024;
  run.max_batch_tokens = run.window = INT64_MAX;
  auto search = search_options();
  search.beam_size = search.n_best = 20;
  search.max_length_factor = 100;
  search.max_length_offset = 100'000;
  xformc_results* results = nullptr;
  CHECK_STATUS(XFORMC_OK, xformc_translate(engines.translation, texts.data(), 3, &search, &run, &results, &error));
  CHECK(xformc_results_count(results) == 3 && xformc_results_hypothesis_count(results, 0) == 20);
  xformc_results_free(results);
  run.max_batch_tokens = run.window = 1;
  CHECK_STATUS(XFORMC_OK, xformc_translate(engines.translation, texts.data(), 3, &search, &run, &results, &error));
  xformc_results_free(results);
  auto sampling = sample_options();
  sampling.seed = int64_t{1} << 62;
  sampling.max_new_tokens = 100'000;
  CHECK_STATUS(XFORMC_OK, xformc_generate(engines.language_model, texts.data(), 3, &sampling, &run, &results, &error));
  xformc_results_free(results);
}

void check_pointers(const Engines& engines) {
  const auto texts = texts_of({"one two"});
  const int64_t ids[] = {5, 3};
  xformc_results* results = nullptr;
  xformc_engine* const none = nullptr;
  const xformc_text null{nullptr, 5};
  CHECK_STATUS(INVALID, xformc_translate(none, texts.data(), 1, nullptr, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_translate(engines.translation, nullptr, 1, nullptr, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_translate(engines.translation, texts.data(), 1, nullptr, nullptr, nullptr, &error));
  CHECK_STATUS(INVALID, xformc_translate(engines.translation, &null, 1, nullptr, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_generate(none, texts.data(), 1, nullptr, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_generate(engines.language_model, nullptr, 1, nullptr, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_generate(engines.language_model, texts.data(), 1, nullptr, nullptr, nullptr, &error));
  CHECK_STATUS(INVALID, xformc_predict(none, texts.data(), 1, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_predict(engines.tagging, nullptr, 1, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_predict(engines.tagging, texts.data(), 1, nullptr, nullptr, &error));
  CHECK_STATUS(INVALID, xformc_search(none, ids, 1, 2, nullptr, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_search(engines.translation, nullptr, 1, 2, nullptr, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_search(engines.translation, ids, 1, 2, nullptr, nullptr, nullptr, &error));
  CHECK_STATUS(INVALID, xformc_transcribe(none, texts.data(), 1, nullptr, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_transcribe(engines.tagging, texts.data(), 1, nullptr, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_transcribe_arrays(none, nullptr, 0, nullptr, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_transcribe_arrays(engines.arrays, nullptr, 5, nullptr, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_sample(none, texts.data(), 1, nullptr, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_sample(engines.tagging, texts.data(), 1, nullptr, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_sample(engines.language_model, texts.data(), 1, nullptr, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_sample_arrays(none, nullptr, 0, nullptr, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_sample_arrays(engines.arrays, nullptr, 5, nullptr, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_predict_arrays(none, nullptr, 0, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_predict_arrays(engines.arrays, nullptr, 5, nullptr, &results, &error));
  CHECK_STATUS(INVALID, xformc_predict_arrays(engines.arrays, nullptr, 0, nullptr, nullptr, &error));
  size_t count = 0;
  int64_t found[64];
  char text[64];
  CHECK_STATUS(INVALID, xformc_encode(none, "source", texts[0], found, 64, &count, &error));
  CHECK_STATUS(INVALID, xformc_encode(engines.translation, nullptr, texts[0], found, 64, &count, &error));
  CHECK_STATUS(INVALID, xformc_encode(engines.translation, "source", null, found, 64, &count, &error));
  CHECK_STATUS(INVALID, xformc_encode(engines.translation, "source", texts[0], found, 64, nullptr, &error));
  CHECK_STATUS(INVALID, xformc_encode(engines.translation, "nothing", texts[0], found, 64, &count, &error));
  CHECK_STATUS(XFORMC_OK, xformc_encode(engines.translation, "source", texts[0], nullptr, 64, &count, &error));
  CHECK_STATUS(INVALID, xformc_decode(none, "source", ids, 2, text, 64, &count, &error));
  CHECK_STATUS(INVALID, xformc_decode(engines.translation, nullptr, ids, 2, text, 64, &count, &error));
  CHECK_STATUS(INVALID, xformc_decode(engines.translation, "source", nullptr, 2, text, 64, &count, &error));
  CHECK_STATUS(INVALID, xformc_decode(engines.translation, "source", ids, 2, text, 64, nullptr, &error));
  CHECK_STATUS(XFORMC_OK, xformc_decode(engines.translation, "source", ids, 2, nullptr, 64, &count, &error));
  CHECK_STATUS(XFORMC_OK, xformc_decode(engines.translation, "source", nullptr, 0, nullptr, 0, &count, &error));
  const auto read = [](void*, xformc_text*) { return 0; };
  const auto write = [](void*, size_t, const xformc_results*) { return 0; };
  for (xformc_engine* engine : {none, engines.translation, engines.language_model, engines.tagging}) {
    const auto reads = engine == nullptr ? +read : nullptr;
    CHECK_STATUS(INVALID, xformc_translate_stream(engine, reads, nullptr, write, nullptr, nullptr, nullptr, &error));
    CHECK_STATUS(INVALID, xformc_transcribe_stream(engine, reads, nullptr, write, nullptr, nullptr, nullptr, &error));
    CHECK_STATUS(INVALID, xformc_sample_stream(engine, reads, nullptr, write, nullptr, nullptr, nullptr, &error));
    CHECK_STATUS(INVALID, xformc_generate_stream(engine, reads, nullptr, write, nullptr, nullptr, nullptr, &error));
    CHECK_STATUS(INVALID, xformc_predict_stream(engine, read, nullptr, engine == nullptr ? +write : nullptr, nullptr,
                                                nullptr, &error));
  }
  CHECK(results == nullptr);
}

void check_counts(const Engines& engines) {
  const auto texts = texts_of({"one two"});
  const int64_t ids[] = {5, 3};
  xformc_results* results = nullptr;
  const xformc_status memory = XFORMC_OUT_OF_MEMORY;
  CHECK_STATUS(memory,
               xformc_translate(engines.translation, texts.data(), SIZE_MAX, nullptr, nullptr, &results, &error));
  CHECK_STATUS(memory,
               xformc_generate(engines.language_model, texts.data(), HUGE_COUNT, nullptr, nullptr, &results, &error));
  CHECK_STATUS(memory, xformc_predict(engines.tagging, texts.data(), HUGE_COUNT, nullptr, &results, &error));
  for (const auto& [rows, length] : std::initializer_list<std::pair<size_t, size_t>>{
           {SIZE_MAX, 2}, {2, SIZE_MAX}, {HUGE_COUNT, 2}, {SIZE_MAX, 1}, {1, SIZE_MAX / 8}, {SIZE_MAX, 0}, {1, 0}}) {
    CHECK_STATUS(INVALID, xformc_search(engines.translation, ids, rows, length, nullptr, nullptr, &results, &error));
  }
  CHECK_STATUS(XFORMC_OK, xformc_search(engines.translation, nullptr, 0, 100, nullptr, nullptr, &results, &error));
  CHECK(xformc_results_count(results) == 0);
  xformc_results_free(results);
  CHECK_STATUS(XFORMC_OK, xformc_translate(engines.translation, nullptr, 0, nullptr, nullptr, &results, &error));
  xformc_results_free(results);
}

void check_texts(const Engines& engines) {
  xformc_results* results = nullptr;
  size_t count = 0;
  for (const std::string& bytes : {std::string("\xff"), std::string("a\xc3"), std::string("\xed\xa0\x80"),
                                   std::string("\xf4\x90\x80\x80"), std::string("\xc0\xaf")}) {
    const xformc_text text = text_of(bytes);
    CHECK_STATUS(INVALID, xformc_translate(engines.translation, &text, 1, nullptr, nullptr, &results, &error));
    CHECK_STATUS(INVALID, xformc_generate(engines.language_model, &text, 1, nullptr, nullptr, &results, &error));
    CHECK_STATUS(INVALID, xformc_predict(engines.tagging, &text, 1, nullptr, &results, &error));
    CHECK_STATUS(INVALID, xformc_encode(engines.translation, "source", text, nullptr, 0, &count, &error));
  }
  const std::string nul("one\0two", 7), spaces(1000, ' ');
  std::string words, unknown;
  while (words.size() < 1 << 20) words += "numbers in words ";
  while (unknown.size() < 1 << 15) unknown += "\xe6\x97\xa5";
  auto run = run_options();
  run.truncate = true;
  for (const std::string& each : {nul, spaces, std::string(), words, unknown}) {
    const xformc_text text = text_of(each);
    CHECK_STATUS(XFORMC_OK, xformc_translate(engines.translation, &text, 1, nullptr, &run, &results, &error));
    xformc_results_free(results);
    CHECK_STATUS(XFORMC_OK, xformc_generate(engines.language_model, &text, 1, nullptr, &run, &results, &error));
    xformc_results_free(results);
    CHECK_STATUS(XFORMC_OK, xformc_predict(engines.tagging, &text, 1, &run, &results, &error));
    xformc_results_free(results);
  }
  const xformc_text text = text_of(words);
  CHECK_STATUS(INVALID, xformc_translate(engines.translation, &text, 1, nullptr, nullptr, &results, &error));
  std::vector<int64_t> ids;
  for (int64_t id = -100; id < 200; ++id) ids.push_back(id);
  ids.insert(ids.end(), {INT64_MIN, INT64_MAX, int64_t{1} << 32, (int64_t{1} << 32) + 5});
  std::string found(1 << 16, 0);
  CHECK_STATUS(XFORMC_OK, xformc_decode(engines.translation, "target", ids.data(), ids.size(), found.data(),
                                        found.size(), &count, &error));
  for (const int64_t id : {int64_t{-1}, int64_t{1000}, INT64_MAX, INT64_MIN}) {
    const int64_t row[] = {5, id, 3};
    CHECK_STATUS(INVALID, xformc_search(engines.translation, row, 1, 3, nullptr, nullptr, &results, &error));
  }
}

void check_arrays(const Engines& engines) {
  xformc_results* results = nullptr;
  const auto predict = [&](xformc_status status, const std::vector<xformc_array>& arrays) {
    CHECK_STATUS(status,
                 xformc_predict_arrays(engines.arrays, arrays.data(), arrays.size(), nullptr, &results, &error));
  };
  Arrays good(4, 5);
  predict(XFORMC_OK, good.arrays);
  CHECK(xformc_results_count(results) == 4);
  xformc_results_free(results);
  results = nullptr;
  for (size_t i = 0; i < good.arrays.size(); ++i) {
    auto wrong = good.arrays;
    wrong[i].name = nullptr;
    predict(INVALID, wrong);
    wrong[i].name = "other";
    predict(INVALID, wrong);
    wrong = good.arrays;
    wrong[i].data = nullptr;
    predict(INVALID, wrong);
    wrong = good.arrays;
    wrong[i].shape = nullptr;
    predict(INVALID, wrong);
    wrong = good.arrays;
    wrong.erase(wrong.begin() + static_cast<long>(i));
    predict(INVALID, wrong);
    wrong = good.arrays;
    wrong.push_back(wrong[i]);  // given twice
    predict(INVALID, wrong);
    for (const int element : {0, 2, 11, 255, -1, INT_MAX}) {
      wrong = good.arrays;
      std::memcpy(&wrong[i].element, &element, sizeof element);
      predict(INVALID, wrong);
    }
    for (const size_t rank : {size_t{0}, good.arrays[i].rank + 1}) {
      const std::vector<int64_t> longer(good.arrays[i].rank + 1, 1);
      wrong = good.arrays;
      wrong[i].shape = longer.data();
      wrong[i].rank = rank;
      predict(INVALID, wrong);
    }
    for (size_t axis = 0; axis < good.arrays[i].rank; ++axis) {
      for (const int64_t size : {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1} << 62, INT64_MAX}) {
        auto shape = good.shapes[i];
        shape[axis] = size;
        wrong = good.arrays;
        wrong[i].shape = shape.data();
        predict(INVALID, wrong);
      }
    }
  }
  Arrays bad(2, 3);
  bad.words[4] = 0;  // padding, then a token
  predict(INVALID, bad.arrays);
  bad.words[4] = 50;
  predict(INVALID, bad.arrays);
  bad.words[4] = 5;
  for (const int64_t length : {INT64_MIN, int64_t{0}, int64_t{4}, INT64_MAX}) {
    bad.lengths[1] = length;
    predict(INVALID, bad.arrays);
  }
  bad.lengths[1] = 3;
  for (const float number : {NAN, INFINITY}) {
    bad.sound[7] = number;
    predict(INVALID, bad.arrays);
  }
  const Arrays none(0, 3);
  predict(XFORMC_OK, none.arrays);
  xformc_results_free(results);
}

// Outputs that are not those of an engine.
void check_outputs(const Engines& engines) {
  const auto texts = texts_of({"one two", "three"});
  const Arrays arrays(2, 3);
  xformc_results* results = nullptr;
  auto search = search_options();
  search.n_best = 2;
  for (int mode = FAKE_FAILS; mode <= FAKE_STRANGE_TOKENS; ++mode) {
    fake_set(static_cast<fake_mode>(mode));
    // Labels have no lengths and no tokens.
    const bool labels = mode != FAKE_LONG_LENGTHS && mode != FAKE_NEGATIVE_LENGTHS && mode != FAKE_STRANGE_TOKENS;
    const xformc_status labelled = labels ? XFORMC_RUN_FAILED : XFORMC_OK;
    CHECK_STATUS(XFORMC_RUN_FAILED,
                 xformc_translate(engines.translation, texts.data(), 2, &search, nullptr, &results, &error));
    CHECK_STATUS(XFORMC_RUN_FAILED,
                 xformc_generate(engines.language_model, texts.data(), 2, nullptr, nullptr, &results, &error));
    CHECK_STATUS(labelled, xformc_predict(engines.tagging, texts.data(), 2, nullptr, &results, &error));
    if (labelled == XFORMC_OK) xformc_results_free(results);
    CHECK_STATUS(labelled, xformc_predict_arrays(engines.arrays, arrays.arrays.data(), 5, nullptr, &results, &error));
    if (labelled == XFORMC_OK) xformc_results_free(results);
  }
  fake_set(FAKE_HONEST);
}

void check_results(const Engines& engines) {
  const auto texts = texts_of({"one two"});
  xformc_results* results = nullptr;
  CHECK_STATUS(XFORMC_OK, xformc_translate(engines.translation, texts.data(), 1, nullptr, nullptr, &results, &error));
  xformc_hypothesis hypothesis;
  xformc_prediction prediction;
  CHECK(xformc_results_hypothesis(results, 0, 0, &hypothesis) && hypothesis.text.data[hypothesis.text.size] == 0);
  CHECK(!xformc_results_hypothesis(results, 0, 0, nullptr) && !xformc_results_hypothesis(results, 1, 0, &hypothesis));
  CHECK(!xformc_results_hypothesis(results, 0, SIZE_MAX, &hypothesis));
  CHECK(!xformc_results_hypothesis(results, SIZE_MAX, 0, &hypothesis));
  CHECK(!xformc_results_prediction(results, 0, &prediction) && !xformc_results_prediction(results, 9, &prediction));
  xformc_value value{};
  value.size = sizeof value;
  CHECK(!xformc_results_value(results, 0, 0, &value) && value.rank == 0);  // a text
  CHECK(xformc_results_transcript_count(results, 0, 0) == 0 && xformc_results_transcript_count(results, 9, 9) == 0);
  CHECK(!xformc_results_transcript(results, 0, 0, 0, &hypothesis));
  xformc_results_free(results);
  CHECK_STATUS(XFORMC_OK, xformc_predict(engines.tagging, texts.data(), 1, nullptr, &results, &error));
  CHECK(!xformc_results_value(results, 0, 1, &value) && !xformc_results_value(results, 1, 0, &value));
  CHECK(!xformc_results_value(results, 0, SIZE_MAX, &value) && !xformc_results_value(results, 0, 0, nullptr));
  for (const size_t size : {size_t{0}, size_t{8}, sizeof value - 1, sizeof value + 1, SIZE_MAX}) {
    value.size = size;
    CHECK(!xformc_results_value(results, 0, 0, &value) && value.rank == 0);
  }
  value.size = sizeof value;
  CHECK(xformc_results_value(results, 0, 0, &value) && value.rank == 2 && value.shape[1] == 3);
  CHECK(value.label_count == static_cast<size_t>(value.shape[0]) && value.labels_per_row[0] == 1);
  xformc_results_free(results);
  xformc_result described{};
  CHECK(!xformc_engine_result(engines.tagging, 0, &described) && described.name == nullptr);
  described.size = sizeof described;
  CHECK(!xformc_engine_result(engines.tagging, 1, &described) && !xformc_engine_result(engines.tagging, 0, nullptr));
  CHECK(xformc_engine_result(engines.tagging, 0, &described) && described.label_count == 3);
  CHECK(xformc_engine_result_label(engines.tagging, 0, 2) != nullptr);
  CHECK(xformc_engine_result_label(engines.tagging, 0, 3) == nullptr);
  CHECK(xformc_engine_label(engines.tagging, SIZE_MAX) == nullptr);
  CHECK(xformc_engine_given_input_rate(engines.tagging, 0) == 0);
  CHECK(xformc_engine_given_input_rate(engines.tagging, SIZE_MAX) == 0);
  CHECK(!xformc_engine_input(engines.tagging, 1, nullptr) && !xformc_engine_input(engines.tagging, 0, nullptr));
}

// Callbacks that end the call, give nonsense, or throw.
void check_streams(const Engines& engines) {
  struct State {
    int reads = 0, writes = 0, read_returns = 1, write_returns = 0, until = 100;
    bool read_throws = false, write_throws = false;
    xformc_text text{"one two", 7};
  };
  const auto read = [](void* data, xformc_text* text) {
    auto& state = *static_cast<State*>(data);
    if (++state.reads > state.until && state.read_throws) throw std::runtime_error("the reader");
    if (state.reads > state.until) return state.read_returns == 1 ? 0 : state.read_returns;
    *text = state.text;
    return 1;
  };
  const auto write = [](void* data, size_t index, const xformc_results* results) {
    auto& state = *static_cast<State*>(data);
    CHECK(index == static_cast<size_t>(state.writes++) && xformc_results_count(results) == 1);
    if (state.write_throws) throw 5;
    return state.write_returns;
  };
  const auto stream = [&](xformc_status status, State& state, int64_t workers) {
    auto run = run_options();
    run.workers = workers;
    run.window = 4;
    CHECK_STATUS(status,
                 xformc_translate_stream(engines.translation, read, &state, write, &state, nullptr, &run, &error));
    state.reads = state.writes = 0;
    CHECK_STATUS(status,
                 xformc_generate_stream(engines.language_model, read, &state, write, &state, nullptr, &run, &error));
    state.reads = state.writes = 0;
    CHECK_STATUS(status, xformc_predict_stream(engines.tagging, read, &state, write, &state, &run, &error));
  };
  for (const int64_t workers : {1, 3}) {
    State honest;
    stream(XFORMC_OK, honest, workers);
    CHECK(honest.writes == 100);
    State stops;
    stops.read_returns = -1;
    stream(XFORMC_CANCELLED, stops, workers);
    State full;
    full.write_returns = 28;
    stream(XFORMC_CANCELLED, full, workers);
    CHECK(full.writes == 1);
    State broken;
    broken.text = {nullptr, 7};
    stream(INVALID, broken, workers);
    broken.text = {"\xff", 1};
    stream(INVALID, broken, workers);
    CHECK(broken.writes == 0);
    State throws;
    throws.read_throws = true;
    stream(XFORMC_INTERNAL_ERROR, throws, workers);
    State strange;
    strange.write_throws = true;
    stream(XFORMC_INTERNAL_ERROR, strange, workers);
  }
}

}  // namespace

int main(int, char** argv) {
  const std::string folder = argv[1];
  check_nothing_given();
  check_load(folder);
  check_floats(folder);
  {
    const Engines engines(folder);
    check_sizes(engines);
    check_options(engines);
    check_extremes(engines);
    check_pointers(engines);
    check_counts(engines);
    check_arrays(engines);
    check_outputs(engines);
    check_results(engines);
    check_streams(engines);
    check_texts(engines);
  }
  CHECK(fake_live() == 0);
}
