// A module for multi-token prediction drafts: the layer that a target was trained with to predict one token further
// (DeepSeek-V3, arXiv 2412.19437; MiMo, 2505.07608). It is fed its own output, behind its last norm, for drafted
// tokens.
#include "drafters/drafters.h"
#include "drafters/heads/head_entry.h"
#include "drafters/heads/mtp_head.h"

namespace foretoken {

Entry<Drafter> mtp() {
  return head_entry({.name = "mtp",
                     .summary = "a module for multi-token prediction, in the target's checkpoint or one of its own",
                     .source = "arXiv 2412.19437, 2505.07608",
                     .taps = [](const nlohmann::json&, const ModelInfo&) { return std::vector<Tap>{kNormed}; },
                     .load =
                         [](const nlohmann::json& head, const std::string& dtype, Host& host) {
                           return std::make_shared<MtpHead>(host.backend(),
                                                            open_mtp(head, host.target(), dtype == "f32"), host.ends(),
                                                            host.target(), dtype);
                         },
                     .inflated_keys = std::vector<std::string>()});
}

}  // namespace foretoken
