#include "experiments/quality/blocks.h"

#include "framework/model/model_tensors.h"
#include "kernels/error.h"

namespace foretoken {

void expect_blocks(const ModelConfig& config, const WeightFormat& format, const std::string& remedy) {
  for (const auto& [name, shape] : tensors_of(config)) {
    if (shape.rank() != 2 || !name.starts_with("model.layers.")) continue;
    const Block block = format.block(shape[0], shape[1]);
    if (block.inputs > 0 && shape[1] % block.inputs == 0) continue;
    throw Error("the " + std::to_string(shape[1]) + " inputs of the matrix '" + name +
                "' do not divide into groups of the format " + format.name() + " (" + format.meaning() + "); " +
                remedy);
  }
}

}  // namespace foretoken
