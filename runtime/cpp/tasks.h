// The tasks of engines: how the engine of each computes its results, and what runs it.
#pragma once

#include <string>
#include <vector>

namespace xformc {

// How an engine computes: a beam search writes text, sampling continues text, or one forward pass gives all results.
enum class Decoding { search, sample, forward };

struct EngineTask {
  const char* name;
  Decoding decoding;
  const char* method;               // what runs its engine
  std::vector<std::string> inputs;  // which are all tokens; empty: any inputs
  bool alone = false;               // it has a single input, of tokens, which the engine writes
};

// The tasks of specs that declare their results: with text that is searched for, with text that is sampled, and without
// text.
constexpr const char* WRITING = "transcription";
constexpr const char* SAMPLED = "sampling";
constexpr const char* RESULTS = "prediction";

// Every task by its name in engine.json.
inline const std::vector<EngineTask>& engine_tasks() {
  static const std::vector<EngineTask> tasks = {
      {"translation", Decoding::search, "translate", {"source", "target"}},
      {"language_model", Decoding::sample, "generate", {}, true},
      {"tagging", Decoding::forward, "predict", {}},
      {"classification", Decoding::forward, "predict", {}},
      {WRITING, Decoding::search, "transcribe", {}},
      {SAMPLED, Decoding::sample, "transcribe", {}},
      {RESULTS, Decoding::forward, "predict", {}},
  };
  return tasks;
}

// The task with this name, which there must be.
inline const EngineTask& engine_task(const std::string& name) {
  const auto& tasks = engine_tasks();
  size_t index = 0;
  while (tasks[index].name != name) ++index;
  return tasks[index];
}

// Whether the task is one that a spec declares by its results.
inline bool declares_results(const std::string& task) { return task == WRITING || task == SAMPLED || task == RESULTS; }

}  // namespace xformc
