// Attention alone: rotary embedding, cache write and attention of one layer, for a few rows of each of many sequences
// with long contexts. A scenario of `foretoken bench --steps`. This module must not know how any operation is computed.
#pragma once
#include "framework/model/config.h"
#include "framework/model/model.h"
#include "kernels/backend.h"

namespace foretoken {

// The last `rows` rows of each of `batch` sequences, whose last row sees `context` slots.
struct AttentionLoad {
  int batch = 1, context = 1, rows = 1;
  LayerShape layer;      // of the cache
  double bytes() const;  // of keys and values of one layer with their scales, each read once: the least traffic
};

// Median seconds of one layer. The layers run one after another on the backend's stream, enough of them that the caches
// no longer hold a layer's pages when it runs again; recorded if the backend records. More rows than `context` are an
// Error.
double attention_seconds(Backend& backend, const ModelConfig& model, const AttentionLoad& load, int repeats);

// The share of `bytes_a_second` that these bytes in `seconds` make.
inline double share_of(double bytes, double seconds, double bytes_a_second) { return bytes / seconds / bytes_a_second; }

}  // namespace foretoken
