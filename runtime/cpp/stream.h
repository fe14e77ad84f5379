// Runs a stream of rows in bounded memory: reads ahead, runs batches in workers, and gives results in order.
#pragma once

#include <functional>
#include <optional>

#include "task.h"

namespace xformc {

// Returns the next row, or nothing at the end; may throw.
using ReadRow = std::function<std::optional<Row>()>;

// Gets the results in order; may throw.
using WriteResult = std::function<void(Result&&)>;

// A free worker takes the next batch of the rows read ahead; as results are given, more rows are read. An error of
// `read` or of a run is thrown in place of the first result that it affects. `read` and `write` are called by the
// calling thread, and no thread outlives the call. The stopper's runs have ended when this returns.
void run_stream(const Task& task, const Model& model, Stopper& stopper, const Batching& batching, const ReadRow& read,
                const WriteResult& write);

}  // namespace xformc
