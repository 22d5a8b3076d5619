#include "drafters/heads/eagle_drafter.h"

#include "drafters/heads/eagle_head.h"
#include "drafters/heads/head_entry.h"

namespace foretoken {

Entry<Drafter> eagle_entry(const std::string& name, int generation, const std::string& summary,
                           const std::string& source) {
  HeadKind kind{
      .name = name,
      .summary = summary,
      .source = source,
      .taps = [generation](const nlohmann::json& head,
                           const ModelInfo& target) { return open_eagle(head, generation, target).form.taps; },
      .load =
          [generation](const nlohmann::json& head, const std::string& dtype, Host& host) {
            return std::make_shared<EagleHead>(host.backend(),
                                               open_eagle(head, generation, host.target(), dtype == "f32"), host.ends(),
                                               host.target(), dtype);
          }};
  kind.inflated_keys.emplace();
  if (generation == 3) kind.random_keys = {{"draft_vocab", 0}}, kind.inflated_keys->push_back("draft_vocab");
  return head_entry(std::move(kind));
}

}  // namespace foretoken
