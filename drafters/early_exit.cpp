// The target drafts for itself with its first layers alone, on its own cache (Elhoushi et al. 2024, LayerSkip, arXiv
// 2404.16710).
#include "drafters/drafters.h"
#include "drafters/target_part.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

// All layers from this one on.
LeftOut behind(int first, const ModelInfo& target) {
  const int count = int(target.kv.layers.size());
  if (first >= count)
    throw Error("option 'layers' of the drafter 'early_exit' is " + std::to_string(first) + ", but " + target.name +
                " has " + std::to_string(count) + " layers; choose fewer");
  LeftOut all;
  for (int l = first; l < count; ++l) all.attention.push_back(l), all.feed_forward.push_back(l);
  return all;
}

}  // namespace

Entry<Drafter> early_exit() {
  return {"the first layers of the target, with its last norm and head, on its own cache",
          "arXiv 2404.16710",
          with_growth_options({{"layers", "integer", nullptr, "how many of its layers are run", false, 0, 1 << 12}}),
          [](const nlohmann::json& o, Host& host) {
            return part_drafter(o, "early_exit", behind(o.at("layers").get<int>(), host.target()), host);
          },
          [](const nlohmann::json& o, const ModelInfo& target) { return part_needs(o, "early_exit", target); },
          {{{"layers", 0}, {"temperature", 0.5}},
           {{"layers", 0}, {"growth", "tree"}, {"shape", {2, 1}}, {"cut", true}, {"draws", "without_replacement"}},
           {{"layers", 0}, {"growth", "dynamic"}, {"width", 2}, {"expand", 2}}}};
}

}  // namespace foretoken
