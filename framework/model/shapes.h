// Published shapes of models by name, for random and inflated weights: the config.json of each, as published. This
// module must not know where weights come from.
#pragma once
#include <string>
#include <vector>

#include "framework/model/config.h"

namespace foretoken {

// In the order of the documentation.
const std::vector<std::string>& shape_names();
// An Error, "unknown shape 'llama-8b' (did you mean 'llama-3.1-8b'?); ...", unless the name is published or, with a
// '/', names a directory.
void expect_shape(const std::string& name);
// The published config.json, read like a file: anything that the transformer does not implement is an Error that names
// it.
ModelConfig published_shape(const std::string& name);

}  // namespace foretoken
