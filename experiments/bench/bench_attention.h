// Attention by itself: rotation, storing and attending of one layer, for a few rows of each of many sequences with long
// contexts. A scenario of `foretoken bench --steps`. This module must not know how any operation is computed.
#pragma once
#include "framework/model/config.h"
#include "kernels/backend.h"

namespace foretoken {

// The last `rows` rows of each of `batch` sequences, whose last row sees `context` slots; keys and values in bf16.
struct AttentionLoad {
  int batch = 1, context = 1, rows = 1;
  double bytes(const ModelConfig& model) const;  // keys and values of one layer, each once: what cannot be avoided
};

// Median seconds of one layer. Layers follow one another on the backend's stream, as many as keep the pages of each out
// of the caches by the time it comes round, recorded where the backend records. More rows than `context` are an Error.
double attention_seconds(Backend& backend, const ModelConfig& model, const AttentionLoad& load, int repeats);

// Of so many bytes a second.
inline double share_of(double bytes, double seconds, double bytes_a_second) { return bytes / seconds / bytes_a_second; }

}  // namespace foretoken
