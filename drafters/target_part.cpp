#include "drafters/target_part.h"

#include "drafters/kept_with_target.h"

namespace foretoken {
Needs part_needs(const nlohmann::json& options, const std::string& drafter, const ModelInfo& target) {
  Needs needs = chosen_growth(options, drafter, target).needs;
  needs.views_target = true;
  return needs;
}

// The part is the same for all engines of a sweep, so that its forwards are recorded once.
std::unique_ptr<Drafter> part_drafter(const nlohmann::json& options, const std::string& drafter,
                                      const LeftOut& left_out, Host& host) {
  const nlohmann::json numbers{left_out.attention, left_out.feed_forward};
  auto part =
      kept_with_target<Model>("part", numbers.dump(), host, [&] { return part_of(host.target_model(), left_out); });
  const Growth growth = chosen_growth(options, drafter, host.target());
  return growth.make(host, RoundModel(host, host.view_of_target(std::move(part))));
}

}  // namespace foretoken
