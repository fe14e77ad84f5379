// Translates text with libxformc. For what it reads and writes, see program.h.
#include <xformc.h>

#include "program.h"

namespace {

void check(xformc_status status, xformc_error* error) {
  if (status != XFORMC_OK) throw std::runtime_error(xformc_error_message(error));
}

class Translator {
 public:
  explicit Translator(const Options& options) {
    xformc_load_options load;
    xformc_load_options_init(&load, sizeof load);
    load.threads = options.number("threads");
    load.workers = options.number("workers");
    load.onnxruntime = options.text("onnxruntime").c_str();
    xformc_error* error = nullptr;
    check(xformc_load(options.text("model").c_str(), &load, &engine_, &error), error);
    xformc_search_options_init(&search_, sizeof search_);
    search_.beam_size = options.number("beam");
    search_.length_penalty = options.real("length_penalty");
    search_.max_length_factor = options.real("length_factor");
    search_.max_length_offset = options.number("length_offset");
    xformc_run_options_init(&run_, sizeof run_);
    run_.max_batch_tokens = options.number("batch_tokens");
  }
  Translator(const Translator&) = delete;
  Translator& operator=(const Translator&) = delete;
  ~Translator() { xformc_engine_free(engine_); }

  Lines translate(const Lines& lines) {
    std::vector<xformc_text> texts;
    for (const std::string& line : lines) texts.push_back({line.data(), line.size()});
    xformc_results* results = nullptr;
    xformc_error* error = nullptr;
    check(xformc_translate(engine_, texts.data(), texts.size(), &search_, &run_, &results, &error), error);
    Lines translated;
    for (size_t index = 0; index < lines.size(); ++index) {
      xformc_hypothesis best;
      xformc_results_hypothesis(results, index, 0, &best);
      translated.emplace_back(best.text.data, best.text.size);
    }
    xformc_results_free(results);
    return translated;
  }

 private:
  xformc_engine* engine_ = nullptr;
  xformc_search_options search_;
  xformc_run_options run_;
};

}  // namespace

int main(int count, char** arguments) { return answer_requests<Translator>(count, arguments); }
