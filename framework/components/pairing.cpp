#include "framework/components/pairing.h"

#include <algorithm>

#include "kernels/error.h"

namespace foretoken {
namespace {

std::string name_of(const nlohmann::json& config) { return "'" + config.at("name").get<std::string>() + "'"; }

}  // namespace

void expect_sound(const ComponentConfigs& configs, const Needs& needs, const Soundness& soundness) {
  std::string taken;
  for (const Drawn d : soundness.takes) taken += (taken.empty() ? "" : ", ") + std::string(foretoken::name_of(d));
  for (const Drawn d : needs.proposes)
    if (std::ranges::find(soundness.takes, d) == soundness.takes.end())
      throw Error("the verifier " + name_of(configs.verifier) + " is not sound for the drafter " +
                  name_of(configs.drafter) + ", whose nodes are drawn '" + foretoken::name_of(d) +
                  "', while it takes those drawn '" + taken + "'; choose another verifier or drafter");
  if (needs.races && *needs.races != soundness.race)
    throw Error("the drafter " + name_of(configs.drafter) + " has an inner verifier that " +
                (*needs.races ? "draws races by position, unlike" : "draws no races by position, while") +
                " the verifier " + name_of(configs.verifier) + (*needs.races ? "" : " does") +
                "; choose an inner verifier that does as the outer one");
}

void expect_confidence(const ComponentConfigs& configs, const Budget& budget, const Needs& needs) {
  if (budget.confidence != 0 && !needs.confidence)
    throw Error("the policy " + name_of(configs.policy) + " sets Budget::confidence, which the drafter " +
                name_of(configs.drafter) +
                " does not serve; choose a drafter that does (Needs::confidence), or another policy");
}

void expect_whole(const ComponentConfigs& configs, const Budget& most, const Needs& needs) {
  const Budget& whole = needs.whole;
  if (!most.drafts() || (most.nodes >= whole.nodes && most.depth >= whole.depth)) return;
  const auto text = [](const Budget& b) {
    return std::to_string(b.nodes) + " nodes (the root included) and " + std::to_string(b.depth) + " levels";
  };
  throw Error("the drafter " + name_of(configs.drafter) + " has a shape of " + text(whole) + ", but the policy " +
              name_of(configs.policy) + " gives at most " + text(most) +
              ", so it would never be drafted whole; raise the policy's budget, choose a smaller shape, or say in the "
              "drafter's options that it may be cut");
}

StatedTraits fitting_traits(const Registries& registries, const ComponentConfigs& configs, const ModelInfo& target) {
  const StatedTraits stated{registries.drafters.traits(configs.drafter, target),
                            registries.policies.traits(configs.policy, target),
                            registries.verifiers.traits(configs.verifier, target)};
  expect_sound(configs, stated.needs, stated.soundness);
  expect_confidence(configs, stated.policy.most, stated.needs);
  return stated;
}

void expect_fit_whole(const Registries& registries, const ComponentConfigs& configs, const ModelInfo& target) {
  const StatedTraits stated = fitting_traits(registries, configs, target);
  expect_whole(configs, stated.policy.most, stated.needs);
}

}  // namespace foretoken
