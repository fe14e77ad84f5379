// A loaded engine, and the methods that the C API offers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "manifest.h"
#include "session.h"
#include "stream.h"
#include "task.h"
#include "token_stream.h"
#include "tokenizer.h"

// Ends the calls that use it; see xformc.h.
struct xformc_cancel {
 public:
  void now();

  // These say that a call runs, or has ended. Throws Failure if it was cancelled before.
  void add(xformc::Stopper& stopper);
  void remove(xformc::Stopper& stopper);

 private:
  std::mutex mutex_;
  bool cancelled_ = false;
  std::vector<xformc::Stopper*> running_;
};

namespace xformc {

// Writes the texts of the next item to `texts`, and returns whether there was one; may throw.
using ReadTexts = std::function<bool(xformc_text* texts)>;

class Engine {
 public:
  // Throws Failure that says what is wrong with the folder or a file in it.
  Engine(const std::string& folder, const xformc_load_options& options);

  const Manifest& manifest() const { return manifest_; }
  const char* onnxruntime() const { return session_->runtime().version(); }

  // The tokens that the engine suppresses unless a call says otherwise.
  const std::vector<xformc_token>& suppressed() const { return suppressed_; }

  // Whether the input or the result of this name has a tokenizer that the library reads.
  bool has_tokenizer(const std::string& name) const { return tokenizer_.count(name) != 0; }

  // Throws Failure if the input has no such tokenizer.
  const Vocabulary& vocabulary(const std::string& input) const;

  // The task of one call. Throws Failure if it is not the engine's, or for invalid options.
  std::unique_ptr<Task> translation(const xformc_search_options* search, const Batching& batching) const;
  std::unique_ptr<Task> transcription(const xformc_search_options* search, const Batching& batching) const;
  std::unique_ptr<Task> sampling(const xformc_sample_options* sampling, const Batching& batching) const;
  std::unique_ptr<Task> generation(const xformc_sample_options* sampling, const Batching& batching) const;
  std::unique_ptr<Task> scoring(const Batching& batching) const;
  std::unique_ptr<Task> aligning(const Batching& batching) const;
  std::unique_ptr<Task> prediction(const Batching& batching) const;
  Batching batching(const xformc_run_options& run) const;

  // Whether this is the process that loaded the engine, and not one that was forked from it.
  bool is_here() const;

  // Throws Failure unless the inputs that calls give are text, with tokenizers, or sounds.
  void check_texts() const;

  // Runs all items: none is run if one of them is invalid.
  std::vector<Result> all(const Task& task, const Batching& batching, xformc_cancel* cancel, const xformc_text* texts,
                          size_t count, size_t texts_per_item) const;
  std::vector<Result> all(const Task& task, Batching batching, xformc_cancel* cancel, std::vector<Row> rows) const;

  // Runs any number of items in constant memory.
  void stream(const Task& task, const Batching& batching, xformc_cancel* cancel, size_t texts_per_item,
              const ReadTexts& read, const WriteResult& write) const;

  // Continues a prompt, and gives each piece of its text as it is sampled.
  Result stream_tokens(const xformc_text& prompt, const xformc_sample_options* sampling, const xformc_run_options& run,
                       const TakePiece& take) const;

  // Searches on ids [rows, length] as one batch.
  std::vector<Result> search(const int64_t* source, size_t rows, size_t length, const xformc_search_options* search,
                             const xformc_run_options& run) const;

 private:
  SearchOptions search_options(const xformc_search_options* search) const;
  // Throws Failure, with a hint that ends with `how`, unless calls of this engine are by `method`.
  void check_method(const char* called, const std::string& method, const char* how = "") const;
  void check_texts(const std::vector<Input>& inputs) const;
  void check_process() const;

  Manifest manifest_;
  std::unique_ptr<Session> session_;
  Tokenizer tokenizer_;
  Lacking lacking_;
  std::vector<xformc_token> suppressed_;
  Log log_;
  int process_;
};

}  // namespace xformc
