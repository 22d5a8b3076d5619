// Hydra's heads draft: each reads a state of the target and all drafted tokens on the path to its node, level by level
// (Ankner et al. 2024, arXiv 2402.05109). Hydra++ has a decoder layer of its own, with a cache, that makes the state.
#include "drafters/drafters.h"
#include "drafters/heads/head_entry.h"
#include "drafters/heads/hydra_head.h"

namespace foretoken {

Entry<Drafter> hydra() {
  const auto open = [](const nlohmann::json& head, const std::string& dtype, Host& host) {
    const auto make = [&] {
      const HydraFiles files = open_hydra(head, host.target(), host.ends().epsilon);
      return std::make_shared<HydraHead>(host.backend(), files, host.ends(), host.target(), dtype);
    };
    const std::string options = head.dump() + " " + dtype;
    return std::make_unique<HydraRound>(host, kept_with_target<HydraHead>("hydra", options, host, make));
  };
  return head_entry({.name = "hydra",
                     .summary = "Hydra or Hydra++ heads on the target's last hidden state and the drafted tokens",
                     .source = "arXiv 2402.05109",
                     .taps = [](const nlohmann::json&, const ModelInfo&) { return std::vector<Tap>{kNormed}; },
                     .open = open,
                     .random_keys = {{"heads", 4}, {"layers", 1}, {"prefix", 0}},
                     .examples = {{{"head", {{"random", "small"}, {"prefix", 1}, {"layers", 2}}},
                                   {"growth", "tree"},
                                   {"shape", {2, 2}},
                                   {"cut", true}},
                                  {{"head", {{"random", "small"}, {"prefix", 1}, {"heads", 2}}}}}});
}

}  // namespace foretoken
