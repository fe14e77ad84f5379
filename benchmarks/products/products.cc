// products THREADS SECONDS: operations a second of the processor's instructions in registers, and of the kernels' products of
// matrices whose weights stay in the second-level cache. Lines "peak NAME THREADS RATE" and "product PRECISION ROWS THREADS
// RATE", the highest of several turns.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "peaks.h"
#include "product.h"

using namespace xformc;

namespace {

constexpr int64_t DEPTH = 512, OUTPUTS = 512;
constexpr int64_t ROUNDS = 4096;
constexpr int TURNS = 5;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The operations a second that so many threads do together; work() gives the operations that it did.
template <typename Work>
double rate(int threads, double seconds, const Work& work) {
  double highest = 0;
  for (int turn = 0; turn < TURNS; ++turn) {
    std::vector<double> rates(static_cast<size_t>(threads));
    std::vector<std::thread> running;
    for (double& found : rates) {
      running.emplace_back([&] {
        int64_t done = 0;
        work();
        const double began = now();
        while (now() - began < seconds) done += work();
        found = static_cast<double>(done) / (now() - began);
      });
    }
    for (std::thread& thread : running) thread.join();
    double sum = 0;
    for (const double found : rates) sum += found;
    highest = std::max(highest, sum);
  }
  return highest;
}

// One thread's matrices; weights of zeros take as long as others.
class Product {
 public:
  Product(Precision precision, int64_t rows)
      : precision_(precision), rows_(rows), x_(static_cast<size_t>(rows * DEPTH), 1.0f),
        y_(static_cast<size_t>(rows * OUTPUTS)),
        panels_(static_cast<size_t>(OUTPUTS / PANEL * panel_bytes(precision, DEPTH)) + 64),
        scale_(static_cast<size_t>(scale_count(precision, OUTPUTS, DEPTH)), 1.0f) {}

  void multiply() {
    const PackedRows packed(routines(), precision_, x_.data(), rows_, DEPTH);
    Weight weight;
    weight.outputs = OUTPUTS;
    weight.panels = panels_.data() + (64 - reinterpret_cast<uintptr_t>(panels_.data()) % 64);
    if (has_scale(precision_) || precision_ == Precision::int16) weight.scale = scale_.data();
    const Result result{y_.data(), OUTPUTS, nullptr, Activation::none};
    packed.multiply(weight, {0, OUTPUTS / PANEL}, {0, packed.blocks()}, false, result);
  }

 private:
  Precision precision_;
  int64_t rows_;
  std::vector<float> x_, y_;
  std::vector<char> panels_;
  std::vector<float> scale_;
};

}  // namespace

int main(int, char** arguments) {
  const int most = std::atoi(arguments[1]);
  const double seconds = std::atof(arguments[2]);
  const std::pair<const char*, Precision> precisions[] = {{"float32", Precision::float32},
                                                          {"bfloat16", Precision::bfloat16},
                                                          {"int16", Precision::int16},
                                                          {"int8", Precision::int8},
                                                          {"int4", Precision::int4}};
  std::printf("instructions %s\n", routines().instructions);
  for (int threads = 1; threads <= most; ++threads) {
    for (const Peak* peak = peaks(); peak->name != nullptr; ++peak) {
      const double found = rate(threads, seconds, [peak] { return ROUNDS * peak->run(ROUNDS); });
      std::printf("peak\t%s\t%d\t%.4g\n", peak->name, threads, found);
    }
    for (const auto& [name, precision] : precisions) {
      for (const int64_t rows : {1, 4, 16, 32, 128}) {
        const double found = rate(threads, seconds, [rows, precision = precision] {
          thread_local Product product(precision, rows);  // of one of the threads that live for a turn
          product.multiply();
          return 2 * rows * DEPTH * OUTPUTS;
        });
        std::printf("product\t%s\t%d\t%d\t%.4g\n", name, static_cast<int>(rows), threads, found);
      }
    }
    std::fflush(stdout);
  }
  return 0;
}
