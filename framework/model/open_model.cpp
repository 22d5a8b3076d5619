#include "framework/model/open_model.h"

#include "framework/model/checkpoint.h"
#include "framework/model/inflation.h"
#include "framework/model/random_weights.h"
#include "framework/model/shapes.h"

namespace foretoken {

OpenModel open_model(const ModelChoice& choice, const FindDirectory& find, const std::function<void()>& between) {
  const auto shape = [&](const std::string& name) {
    return name.find('/') == std::string::npos ? published_shape(name) : ModelConfig::load(find(name));
  };
  if (!choice.random.empty()) {
    OpenModel m{shape(choice.random), std::make_shared<RandomWeights>(choice.seed, between)};
    m.config.eos.clear();
    return m;
  }
  const auto directory = find(choice.directory);
  OpenModel m{ModelConfig::load(directory), std::make_shared<Checkpoint>(Checkpoint::open(directory))};
  if (choice.inflate.empty()) return m;
  const auto inflated = std::make_shared<InflatedWeights>(m.tensors, m.config, shape(choice.inflate), choice.directory,
                                                          choice.inflate, choice.dtype == "f32", between);
  return {inflated->config(), inflated};
}

std::uint64_t random_vocabulary(int tokens) { return 0x72616e646f6d0000ull ^ std::uint64_t(tokens); }

}  // namespace foretoken
