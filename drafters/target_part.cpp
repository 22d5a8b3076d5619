#include "drafters/target_part.h"

namespace foretoken {
namespace {

struct KeptPart {
  std::shared_ptr<Model> part;
};

}  // namespace

std::vector<Option> with_growth_options(std::vector<Option> options) {
  for (Option& o : growth_options()) options.push_back(std::move(o));
  return options;
}

Needs part_needs(const nlohmann::json& options, const std::string& drafter, const ModelInfo& target) {
  Needs needs = chosen_growth(options, drafter, target).needs;
  needs.views_target = true;
  return needs;
}

// The part is the same for all engines of a sweep, so that its forwards are recorded once.
std::unique_ptr<Drafter> part_drafter(const nlohmann::json& options, const std::string& drafter,
                                      const LeftOut& left_out, Host& host) {
  const std::shared_ptr<Model> target = host.target_model();
  const nlohmann::json numbers{left_out.attention, left_out.feed_forward};
  const std::string key = "part of " + std::to_string(target->serial()) + " " + numbers.dump();
  const auto kept =
      host.keep<KeptPart>(key, [&] { return std::make_shared<KeptPart>(KeptPart{part_of(target, left_out)}); });
  const Growth growth = chosen_growth(options, drafter, host.target());
  return growth.make(host, RoundModel(host, host.view_of_target(kept->part)));
}

}  // namespace foretoken
