#include "experiments/quality/blocks.h"

#include "framework/model/model_tensors.h"

namespace foretoken {

void expect_blocks(const ModelConfig& config, const WeightFormat& format, const std::string& remedy) {
  for (const auto& [name, shape] : tensors_of(config))
    if (shape.rank() == 2 && name.starts_with("model.layers."))
      blocks_of(format, shape[0], shape[1], 0, "the matrix '" + name + "'", remedy);
}

}  // namespace foretoken
