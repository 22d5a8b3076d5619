// Reads how a config.json rotates queries and keys. This module must not know families: it is told their defaults.
#pragma once
#include "framework/model/config.h"
#include "framework/text/json_file.h"

namespace foretoken {

struct RopeDefaults {
  double theta = 10000;
  double local_theta = 0;  // of layers with a window, where these have a rule of their own; 0: one rule for all layers
  bool partial = false;    // a part of each head may be rotated (partial_rotary_factor), and scaled by "longrope" alone
  const char* rule = nullptr;  // rope_parameters where a file has none, as JSON; null: nothing is scaled
};

// Sets rope_theta, local_theta, rope_scaling and rotary of a configuration that has its sizes; "longrope" limits its
// positions to those of short factors. Anything that is not implemented is an Error that names the key and its value.
void read_rope(const Fields& config, const RopeDefaults& defaults, ModelConfig& m);

// Layers that rotate nothing, ascending: those of which no_rope_layers has a 0, or each no_rope_layer_interval-th.
std::vector<int> still_layers(const Fields& config, int layers);

}  // namespace foretoken
