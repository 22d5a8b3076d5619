// Published shapes of models by name, for weights that are made instead of downloaded: the config.json of each, as its
// makers published it. This module must not know where weights come from.
#pragma once
#include <string>
#include <vector>

#include "framework/model/config.h"

namespace foretoken {

// In the order of the documentation.
const std::vector<std::string>& shape_names();
// "unknown shape 'llama-8b' (did you mean 'llama-3.1-8b'?); ..." unless the name is published or names a directory: has
// a '/'.
void expect_shape(const std::string& name);
// What the published config.json says, read as a file would be: what the transformer does not compute is refused by
// name.
ModelConfig published_shape(const std::string& name);

}  // namespace foretoken
