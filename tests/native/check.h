// What the native tests share. A program ends at the first check that fails, with its place.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "../../runtime/cpp/include/xformc.h"

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      std::_Exit(1);                                                                     \
    }                                                                                    \
  } while (false)

// Checks the status of a call, whose last argument is &error, and prints the message of another one.
#define CHECK_STATUS(wanted, call)                                                                     \
  do {                                                                                                 \
    xformc_error* error = nullptr;                                                                     \
    const xformc_status returned = call;                                                               \
    if (returned != (wanted)) {                                                                        \
      std::fprintf(stderr, "%s:%d: %s returns %d, not %d: %s\n", __FILE__, __LINE__, #call,            \
                   static_cast<int>(returned), static_cast<int>(wanted), xformc_error_message(error)); \
      std::_Exit(1);                                                                                   \
    }                                                                                                  \
    CHECK(xformc_error_status(error) == returned && (error == nullptr) == (returned == XFORMC_OK));    \
    xformc_error_free(error);                                                                          \
  } while (false)

template <typename Options, typename Init>
Options options_of(Init init) {
  Options options;
  init(&options, sizeof options);
  return options;
}

inline xformc_load_options load_options() { return options_of<xformc_load_options>(xformc_load_options_init); }
inline xformc_run_options run_options() { return options_of<xformc_run_options>(xformc_run_options_init); }
inline xformc_search_options search_options() { return options_of<xformc_search_options>(xformc_search_options_init); }
inline xformc_sample_options sample_options() { return options_of<xformc_sample_options>(xformc_sample_options_init); }

inline xformc_text text_of(const std::string& text) { return {text.data(), text.size()}; }

inline std::vector<xformc_text> texts_of(std::initializer_list<const char*> literals) {
  std::vector<xformc_text> found;
  for (const char* text : literals) found.push_back({text, std::strlen(text)});
  return found;
}

inline xformc_engine* load(const std::string& folder, const xformc_load_options* options = nullptr) {
  xformc_engine* engine = nullptr;
  CHECK_STATUS(XFORMC_OK, xformc_load(folder.c_str(), options, &engine, &error));
  return engine;
}

// An engine of each task, in the folders that tests/native/engines.py writes.
struct Engines {
  explicit Engines(const std::string& folder)
      : translation(load(folder + "/translation")), language_model(load(folder + "/language_model")),
        tagging(load(folder + "/tagging")), arrays(load(folder + "/arrays")) {}
  Engines(const Engines&) = delete;
  Engines& operator=(const Engines&) = delete;
  ~Engines() {
    for (xformc_engine* engine : {translation, language_model, tagging, arrays}) xformc_engine_free(engine);
  }

  xformc_engine *translation, *language_model, *tagging, *arrays;
};

// Arrays for the engine `arrays`: `rows` examples, each of them of this many positions.
struct Arrays {
  Arrays(int64_t rows, int64_t positions)
      : words(rows * positions, 5), sound(rows * positions * 3, 0.5F), lengths(rows, positions), age(rows, 1),
        links(rows * positions * positions, 1),
        shapes{{rows, positions}, {rows, positions, 3}, {rows}, {rows, 1}, {rows, positions, positions}} {
    arrays = {{"words", XFORMC_INT64, words.data(), shapes[0].data(), 2},
              {"sound", XFORMC_FLOAT32, sound.data(), shapes[1].data(), 3},
              {"sound_lengths", XFORMC_INT64, lengths.data(), shapes[2].data(), 1},
              {"age", XFORMC_FLOAT32, age.data(), shapes[3].data(), 2},
              {"links", XFORMC_BOOL, links.data(), shapes[4].data(), 3}};
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  std::vector<int64_t> words;
  std::vector<float> sound;
  std::vector<int64_t> lengths;
  std::vector<float> age;
  std::vector<char> links;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<xformc_array> arrays;
};
