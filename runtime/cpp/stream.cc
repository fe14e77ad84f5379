#include "stream.h"

#include <condition_variable>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "lookahead.h"

namespace xformc {
namespace {

// Rows that run together, and what came of them.
struct Job {
  std::vector<size_t> numbers;
  std::vector<Row> rows;
  std::vector<Result> results;
  std::exception_ptr error;
};

// Runs jobs in threads, which start when there is work for them; with one worker the caller may run them itself.
class Workers {
 public:
  Workers(const Task& task, const Model& model, Stopper& stopper, size_t count)
      : task_(task), model_(model), stopper_(stopper), most_(count) {}

  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  ~Workers() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
      waiting_.clear();
      if (running_ > 0) stopper_.stop();
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void start(Job job) {
    std::list<Job> added;
    added.push_back(std::move(job));
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.splice(waiting_.end(), added);
    ++running_;
    if (threads_.size() < most_ && threads_.size() < running_) threads_.emplace_back([this] { work(); });
    changed_.notify_all();
  }

  // The number of jobs that were started and not yet collected.
  size_t running() const { return running_; }

  // Waits for a job to be done, and returns it.
  Job collect() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !done_.empty(); });
    Job job = std::move(done_.front());
    done_.pop_front();
    --running_;
    return job;
  }

  void run(Job& job) const noexcept {
    try {
      Rows rows;
      for (const Row& row : job.rows) rows.push_back(&row);
      job.results = task_.run(model_, stopper_, rows);
    } catch (...) {
      job.error = std::current_exception();
    }
    job.rows.clear();
  }

 private:
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
      if (closed_) return;
      std::list<Job> taken;  // moving a job from list to list allocates nothing, so it cannot fail
      taken.splice(taken.end(), waiting_, waiting_.begin());
      lock.unlock();
      run(taken.front());
      lock.lock();
      done_.splice(done_.end(), taken);
      changed_.notify_all();
    }
  }

  const Task& task_;
  const Model& model_;
  Stopper& stopper_;
  const size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Job> waiting_, done_;
  size_t running_ = 0;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

// The state of one call: each numbered row is waiting, running or done.
class Stream {
 public:
  Stream(const Task& task, const Model& model, Stopper& stopper, const Batching& batching, const ReadRow& read)
      : task_(task), stopper_(stopper), read_(read), batching_(batching),
        lookahead_(batching.max_batch_tokens, batching.workers),
        workers_(task, model, stopper, static_cast<size_t>(batching.workers)) {}

  void run(const WriteResult& write) {
    size_t given = 0;
    while (true) {
      if (stopper_.stopped()) throw cancelled();
      for (auto next = done_.find(given); next != done_.end(); next = done_.find(given)) {
        Result result = std::move(next->second);
        done_.erase(next);
        write(std::move(result));
        ++given;
      }
      if (error_ && failed_ == given) std::rethrow_exception(error_);
      fill(given + static_cast<size_t>(batching_.window));
      if (runs_here()) {
        Job job = next_job();
        workers_.run(job);
        keep(std::move(job));
        continue;
      }
      while (!lookahead_.empty() && workers_.running() <= static_cast<size_t>(batching_.workers)) {
        workers_.start(next_job());
      }
      if (workers_.running() > 0) {
        keep(workers_.collect());
      } else if (given == count_) {
        return;
      }
    }
  }

 private:
  // Whether the calling thread runs the next batch: when all rows are read, it has nothing else to do.
  bool runs_here() const { return ended_ && batching_.workers == 1 && workers_.running() == 0 && !lookahead_.empty(); }

  // Reads rows up to but excluding this number.
  void fill(size_t until) {
    while (!ended_ && count_ < until) {
      try {
        std::optional<Row> row = read_();
        ended_ = !row;
        if (ended_) return;
        lookahead_.add(count_, task_.size(*row));
        rows_[count_] = std::move(*row);
      } catch (...) {
        fail(count_, std::current_exception());
      }
      ++count_;
    }
  }

  Job next_job() {
    Job job;
    job.numbers = lookahead_.take(ended_);
    for (const size_t number : job.numbers) {
      job.rows.push_back(std::move(rows_[number]));
      rows_.erase(number);
    }
    return job;
  }

  void keep(Job job) {
    if (job.error) return fail(job.numbers[0], job.error);
    for (size_t i = 0; i < job.numbers.size(); ++i) done_[job.numbers[i]] = std::move(job.results[i]);
  }

  // Records an error; no result from this row on will be given.
  void fail(size_t number, std::exception_ptr error) {
    ended_ = true;
    if (error_ && failed_ <= number) return;
    error_ = std::move(error);
    failed_ = number;
    lookahead_.drop_from(number);
  }

  const Task& task_;
  const Stopper& stopper_;
  const ReadRow& read_;
  const Batching batching_;
  Lookahead lookahead_;
  std::map<size_t, Row> rows_;
  std::map<size_t, Result> done_;
  std::exception_ptr error_;
  size_t failed_ = 0, count_ = 0;
  bool ended_ = false;
  Workers workers_;
};

}  // namespace

void run_stream(const Task& task, const Model& model, Stopper& stopper, const Batching& batching, const ReadRow& read,
                const WriteResult& write) {
  Stream(task, model, stopper, batching, read).run(write);
}

}  // namespace xformc
