// The target drafts for itself with its own weights over the first and the last pages of its own cache: attention sinks
// and a window (Xiao et al. 2023, StreamingLLM, arXiv 2309.17453) as a draft, after Chen et al. 2024, MagicDec
// (2408.11049). Nothing is trained, loaded or stored. Keys keep the rotation of their true positions, so distances to
// the sinks grow with the context; StreamingLLM rotates anew by places in its cache.
#include "drafters/drafters.h"
#include "drafters/target_part.h"
#include "framework/cache/page_choices.h"

namespace foretoken {
Entry<Drafter> window() {
  return {"the target itself on the first and last pages of its own cache",
          "arXiv 2309.17453, 2408.11049",
          with_growth_options(
              {{"sinks", "integer", 4, "positions at the beginning that it reads, in whole pages", false, 0, 1 << 30},
               {"window", "integer", 1024, "last positions that it reads, in whole pages", false, 1, 1 << 30}}),
          [](const nlohmann::json& o, Host& host) {
            return part_drafter(o, "window", {}, host, sinks_and_window(o.at("sinks"), o.at("window")));
          },
          [](const nlohmann::json& o, const ModelInfo& target) { return part_needs(o, "window", target); },
          {{{"sinks", 1}, {"window", 2}, {"temperature", 0.5}},
           {{"sinks", 0},
            {"window", 1},
            {"growth", "tree"},
            {"shape", {2, 1}},
            {"cut", true},
            {"draws", "without_replacement"}},
           {{"sinks", 3}, {"window", 4}, {"growth", "dynamic"}, {"width", 2}, {"expand", 2}}},
          "",
          {},
          [](const nlohmann::json& o, Host& host) {
            return part_model({}, host, sinks_and_window(o.at("sinks"), o.at("window")));
          }};
}

}  // namespace foretoken
