// The target drafts for itself without some of its sublayers, on its own cache (Zhang et al. 2024, Draft & Verify,
// arXiv 2309.08168; Xia et al. 2024, SWIFT, 2410.06916). Nothing is trained or loaded, and no other cache is filled.
#include <algorithm>
#include <limits>

#include "drafters/drafters.h"
#include "drafters/target_part.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

std::vector<int> layers(const nlohmann::json& o, const char* option) {
  std::vector<int> all;
  for (const nlohmann::json& l : o.at(option)) {
    const std::optional<int> number = integer_in(l, -std::numeric_limits<int>::max(), std::numeric_limits<int>::max());
    if (!number)
      throw Error("option '" + std::string(option) +
                  "' of the drafter 'layer_skip' is a list of numbers of layers, but " + l.dump() + " is none");
    all.push_back(*number);
  }
  std::ranges::sort(all);
  const auto again = std::ranges::unique(all);
  all.erase(again.begin(), again.end());
  return all;
}

LeftOut left_out_of(const nlohmann::json& o) {
  LeftOut all{layers(o, "attention"), layers(o, "feed_forward")};
  if (all.attention.empty() && all.feed_forward.empty())
    throw Error(
        "the drafter 'layer_skip' leaves out nothing, so that it costs as much as the target; give it 'attention' or "
        "'feed_forward', lists of numbers of layers, from 0");
  return all;
}

}  // namespace

Entry<Drafter> layer_skip() {
  return {"the target itself without some of its sublayers, on its own cache",
          "arXiv 2309.08168, 2410.06916",
          with_growth_options(
              {{"attention", "list", nlohmann::json::array(), "layers, from 0, whose attention is left out"},
               {"feed_forward", "list", nlohmann::json::array(), "layers whose feed-forward is left out"}}),
          [](const nlohmann::json& o, Host& host) { return part_drafter(o, "layer_skip", left_out_of(o), host); },
          [](const nlohmann::json& o, const ModelInfo& target) {
            (void)left_out_of(o);
            return part_needs(o, "layer_skip", target);
          },
          {{{"attention", {0}}, {"temperature", 0.5}},
           {{"attention", {0}},
            {"feed_forward", {0}},
            {"growth", "tree"},
            {"shape", {2, 1}},
            {"cut", true},
            {"draws", "without_replacement"}},
           {{"feed_forward", {0}}, {"growth", "dynamic"}, {"width", 2}, {"expand", 2}}},
          "",
          {},
          [](const nlohmann::json& o, Host& host) { return part_model(left_out_of(o), host); }};
}

}  // namespace foretoken
