// KV compaction alone: one call that moves the accepted rows of every sequence of a batch, as after a step whose trees
// were accepted off their first branch. A scenario of `foretoken bench --steps`. This module must not know how rows are
// moved.
#pragma once
#include "framework/model/model.h"
#include "kernels/backend.h"

namespace foretoken {

// `rows` rows move in each of `batch` block tables of `context` slots, in all layers of one cache.
struct CompactionLoad {
  int batch = 1, context = 1, rows = 1;
  KvShape cache;
  double bytes() const;  // read and written
};

// Median seconds of one call of Backend::move on the backend's stream. Each call moves rows of other pages than the
// call before. A context without as many rows is an Error.
double compaction_seconds(Backend& backend, const CompactionLoad& load, int repeats);

}  // namespace foretoken
