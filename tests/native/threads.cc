// Many threads on the same engines: calls of every kind, engines loaded and freed, and cancels at random moments.
// threads FOLDER [SECONDS]
#include <atomic>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "check.h"
#include "fake_onnxruntime.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int THREADS = 16;

struct Item {
  int reads = 0;
  xformc_cancel* cancel = nullptr;  // used after a few reads
};

int read_twenty(void* data, xformc_text* text) {
  auto& item = *static_cast<Item*>(data);
  if (item.reads == 7) xformc_cancel_now(item.cancel);
  if (item.reads++ == 20) return 0;
  *text = {"one two three", 13};
  return 1;
}

int write_none(void*, size_t, const xformc_results*) { return 0; }

// A call of a random kind, which must return XFORMC_OK, or XFORMC_CANCELLED if `cancel` is given.
void call(const Engines& engines, std::mt19937& random, xformc_cancel* cancel) {
  const auto texts = texts_of({"one two", "a man rides a red bicycle", "", "hello world", "twenty-one"});
  auto run = run_options();
  run.cancel = cancel;
  run.workers = 1 + static_cast<int64_t>(random() % 3);
  run.max_batch_tokens = random() % 2 == 0 ? 1 : XFORMC_DEFAULT;
  run.window = random() % 2 == 0 ? 2 : XFORMC_DEFAULT;
  xformc_results* results = nullptr;
  xformc_status status = XFORMC_OK;
  Item item;
  const Arrays arrays(3, 4);
  const int64_t ids[] = {5, 6, 3, 5, 3, 0};
  size_t count = 0;
  switch (random() % 8) {
    case 0: status = xformc_translate(engines.translation, texts.data(), 5, nullptr, &run, &results, nullptr); break;
    case 1: status = xformc_generate(engines.language_model, texts.data(), 5, nullptr, &run, &results, nullptr); break;
    case 2: status = xformc_predict(engines.tagging, texts.data(), 5, &run, &results, nullptr); break;
    case 3: status = xformc_search(engines.translation, ids, 2, 3, nullptr, &run, &results, nullptr); break;
    case 4: status = xformc_predict_arrays(engines.arrays, arrays.arrays.data(), 5, &run, &results, nullptr); break;
    case 5:
      status =
          xformc_translate_stream(engines.translation, read_twenty, &item, write_none, nullptr, nullptr, &run, nullptr);
      break;
    case 6:
      if (random() % 2 == 0) item.cancel = cancel;
      status = xformc_predict_stream(engines.tagging, read_twenty, &item, write_none, nullptr, &run, nullptr);
      break;
    default: status = xformc_encode(engines.translation, "source", texts[1], nullptr, 0, &count, nullptr);
  }
  CHECK(status == XFORMC_OK || (status == XFORMC_CANCELLED && cancel != nullptr));
  xformc_results_free(results);
}

template <typename Body>
void in_threads(const Body& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < THREADS; ++i) {
    threads.emplace_back([&body, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      body(random);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void check_calls(const Engines& engines, Clock::time_point end) {
  in_threads([&](std::mt19937& random) {
    while (Clock::now() < end) call(engines, random, nullptr);
  });
}

void check_loads(const std::string& folder, Clock::time_point end) {
  in_threads([&](std::mt19937& random) {
    while (Clock::now() < end) {
      const Engines engines(folder);
      call(engines, random, nullptr);
      xformc_engine* none = nullptr;
      CHECK(xformc_load((folder + "/none").c_str(), nullptr, &none, nullptr) == XFORMC_INVALID_ENGINE);
    }
  });
}

// One cancel for the calls of all threads, used by another one; then a new one.
void check_cancels(const Engines& engines, Clock::time_point end) {
  while (Clock::now() < end) {
    xformc_cancel* cancel = xformc_cancel_new();
    std::thread canceller([=] {
      std::this_thread::sleep_for(std::chrono::microseconds(std::random_device()() % 3000));
      xformc_cancel_now(cancel);
    });
    in_threads([&](std::mt19937& random) {
      for (int i = 0; i < 5; ++i) call(engines, random, cancel);
    });
    canceller.join();
    const auto texts = texts_of({"one"});
    auto run = run_options();
    run.cancel = cancel;
    xformc_results* results = nullptr;
    CHECK_STATUS(XFORMC_CANCELLED,
                 xformc_translate(engines.translation, texts.data(), 1, nullptr, &run, &results, &error));
    CHECK_STATUS(XFORMC_CANCELLED, xformc_translate_stream(engines.translation, read_twenty, nullptr, write_none,
                                                           nullptr, nullptr, &run, &error));
    xformc_cancel_free(cancel);
  }
}

// A cancel ends runs that would never end.
void check_endless(const Engines& engines) {
  fake_set(FAKE_ENDLESS);
  xformc_cancel* cancel = xformc_cancel_new();
  std::thread canceller([=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    xformc_cancel_now(cancel);
  });
  in_threads([&](std::mt19937& random) { call(engines, random, cancel); });
  canceller.join();
  xformc_cancel_free(cancel);
  fake_set(FAKE_HONEST);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string folder = arguments[1];
  const double seconds = count > 2 ? std::atof(arguments[2]) : 1;
  const auto third = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds / 3));
  {
    const Engines engines(folder);
    check_calls(engines, Clock::now() + third);
    check_cancels(engines, Clock::now() + third);
    check_endless(engines);
  }
  check_loads(folder, Clock::now() + third);
  CHECK(fake_live() == 0);
}
