// A forked process: with its parent's engine, errors and no hang; with its own, results.
// forks ENGINE, which translates
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "check.h"

namespace {

// Runs `body` in a forked process that ends at once after it.
template <typename Body>
void in_child(const char* what, const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    body();
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  if (status != 0) std::fprintf(stderr, "%s: status %x\n", what, static_cast<unsigned>(status));
  CHECK(status == 0);
}

}  // namespace

int main(int, char** argv) {
  const std::string folder = argv[1];
  const auto texts = texts_of({"one two", "hello world"});
  xformc_engine* engine = load(folder);
  const auto translate = [&](xformc_engine* with, xformc_status wanted) {
    auto run = run_options();
    run.workers = 2;
    xformc_results* results = nullptr;
    CHECK_STATUS(wanted, xformc_translate(with, texts.data(), texts.size(), nullptr, &run, &results, &error));
    xformc_results_free(results);
  };
  translate(engine, XFORMC_OK);
  in_child("with the parent's engine", [&] {
    translate(engine, XFORMC_INVALID_ARGUMENT);
    CHECK(std::string(xformc_engine_task(engine)) == "translation");
    xformc_engine_free(engine);
  });
  in_child("with its own engine", [&] {
    xformc_engine* own = load(folder);
    translate(own, XFORMC_OK);
    xformc_engine_free(own);
    xformc_engine_free(engine);
  });
  std::thread busy([&] {
    for (int i = 0; i < 20; ++i) translate(engine, XFORMC_OK);
  });
  for (int i = 0; i < 5; ++i) in_child("beside a thread", [&] { translate(engine, XFORMC_INVALID_ARGUMENT); });
  busy.join();
  translate(engine, XFORMC_OK);
  xformc_engine_free(engine);
}
