#include "framework/components/pairing.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "kernels/error.h"

namespace foretoken {
namespace {

std::string name_of(const nlohmann::json& config) { return "'" + config.at("name").get<std::string>() + "'"; }

// What entries state before any component is made; empty where the component itself must be asked.
struct StatedTraits {
  std::optional<Needs> needs;
  std::optional<Budget> most;
  std::optional<Soundness> soundness;
};

StatedTraits stated_traits(const Registries& registries, const ComponentConfigs& configs, const ModelInfo& target) {
  return {registries.drafters.traits(configs.drafter, target), registries.policies.traits(configs.policy, target),
          registries.verifiers.traits(configs.verifier, target)};
}

void expect_fit(const ComponentConfigs& configs, const StatedTraits& stated) {
  const auto& [needs, most, soundness] = stated;
  if (needs) expect_served(*needs, "the drafter " + name_of(configs.drafter));  // first, as in Engine
  if (needs && soundness) expect_sound(configs, *needs, *soundness);
  if (needs && most) expect_confidence(configs, *most, *needs);
}

}  // namespace

void expect_sound(const ComponentConfigs& configs, const Needs& needs, const Soundness& soundness) {
  std::string taken;
  for (const Drawn d : soundness.takes) taken += (taken.empty() ? "" : ", ") + std::string(foretoken::name_of(d));
  for (const Drawn d : needs.proposes)
    if (std::ranges::find(soundness.takes, d) == soundness.takes.end())
      throw Error("the verifier " + name_of(configs.verifier) + " is not sound for the drafter " +
                  name_of(configs.drafter) + ", whose nodes are drawn '" + foretoken::name_of(d) +
                  "', while it takes those drawn '" + taken + "'; choose another verifier or drafter");
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

void expect_repeated(const ComponentConfigs& configs, const Host::Inner& inner, const Needs& needs,
                     const Soundness& soundness) {
  if (inner.ranks > needs.ranks)
    throw Error("the drafter " + name_of(configs.drafter) + " is made of another that needs " +
                std::to_string(inner.ranks) + " ranks, but itself asks for " + std::to_string(needs.ranks) +
                "; let its own Needs::ranks be as many");
  if (inner.raw && !soundness.raw)
    throw Error("the verifier " + name_of(configs.verifier) +
                " is made of another that reads raw distributions, but itself does not ask for them; set its own "
                "Soundness::raw");
}

TargetUse use_of_target(const Registries& registries, const ComponentConfigs& configs, const ModelInfo& target) {
  TargetUse use;
  const std::function<void(const nlohmann::json&)> add = [&](const nlohmann::json& config) {
    const nlohmann::json complete = registries.drafters.complete(config);
    const Entry<Drafter>& entry = registries.drafters.find(config);
    const Needs needs = entry.traits ? entry.traits(complete, target) : Needs();
    for (const Tap t : needs.hidden)
      if (std::ranges::find(use.taps, t) == use.taps.end()) use.taps.push_back(t);
    use.views |= needs.views_target;
    for (const Option& o : entry.options)
      if (o.type == "drafter" && complete.at(o.name).is_object()) add(complete.at(o.name));
  };
  add(configs.drafter);
  return use;
}

void expect_taps(const ComponentConfigs& configs, std::span<const Tap> taps, const Host::Inner& inner,
                 const Needs& needs) {
  for (const std::vector<Tap>& read : {needs.hidden, inner.hidden})
    for (const Tap t : read)
      if (std::ranges::find(taps, t) == taps.end())
        throw Error("the drafter " + name_of(configs.drafter) + " reads the target's hidden state at point " +
                    std::to_string(t) + ", which its Entry::traits does not state; they are kept in the target's " +
                    "pages, so they must be known before it is made");
}

void expect_fit(const Registries& registries, const ComponentConfigs& configs, const ModelInfo& target) {
  expect_fit(configs, stated_traits(registries, configs, target));
}

void expect_fit_whole(const Registries& registries, const ComponentConfigs& configs, const ModelInfo& target) {
  const StatedTraits stated = stated_traits(registries, configs, target);
  expect_fit(configs, stated);
  if (stated.needs && stated.most) expect_whole(configs, *stated.most, *stated.needs);
}

}  // namespace foretoken
