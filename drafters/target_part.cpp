#include "drafters/target_part.h"

#include "drafters/kept_with_target.h"

namespace foretoken {
Needs part_needs(const nlohmann::json& options, const std::string& drafter, const ModelInfo& target) {
  Needs needs = chosen_growth(options, drafter, target).needs;
  needs.views_target = true;
  return needs;
}

std::shared_ptr<Model> kept_part(const LeftOut& left_out, Host& host) {
  const nlohmann::json numbers{left_out.attention, left_out.feed_forward, left_out.head, left_out.pages};
  return kept_with_target<Model>("part", numbers.dump(), host, [&] { return part_of(host.target_model(), left_out); });
}

OwnModel part_model(const LeftOut& left_out, Host& host, PageChoice chosen) {
  LeftOut all = left_out;
  all.pages = bool(chosen);
  return {host.view_of_target(kept_part(all, host), std::move(chosen))};
}

std::unique_ptr<Drafter> part_drafter(const nlohmann::json& options, const std::string& drafter,
                                      const LeftOut& left_out, Host& host, PageChoice chosen) {
  const Growth growth = chosen_growth(options, drafter, host.target());
  return growth.make(host, RoundModel(host, part_model(left_out, host, std::move(chosen)).model));
}

}  // namespace foretoken
