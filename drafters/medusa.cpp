// Medusa's heads draft: each predicts one more of the next tokens from the target's last hidden state, without knowing
// the tokens between (Cai et al. 2024, arXiv 2401.10774). One forward gives the distributions of all levels of a tree.
#include "drafters/drafters.h"
#include "drafters/heads/head_entry.h"
#include "drafters/heads/medusa_head.h"

namespace foretoken {

Entry<Drafter> medusa() {
  const auto open = [](const nlohmann::json& head, const std::string& dtype, Host& host) {
    const auto make = [&] {
      return std::make_shared<MedusaHeads>(host.backend(), open_medusa(head, host.target()), host.ends(), host.target(),
                                           dtype);
    };
    const std::string options = head.dump() + " " + dtype;
    return std::make_unique<MedusaRound>(host, kept_with_target<MedusaHeads>("medusa", options, host, make));
  };
  return head_entry({.name = "medusa",
                     .summary = "Medusa heads on the target's last hidden state, one for each level of a tree",
                     .source = "arXiv 2401.10774",
                     .taps = [](const nlohmann::json&, const ModelInfo&) { return std::vector<Tap>{kNormed}; },
                     .open = open,
                     .random_keys = {{"heads", 4}, {"layers", 1}},
                     .marginals = true,
                     .examples = {{{"head", {{"random", "small"}, {"heads", 2}, {"layers", 2}}},
                                   {"growth", "tree"},
                                   {"shape", {2, 2}},
                                   {"cut", true}}}});
}

}  // namespace foretoken
