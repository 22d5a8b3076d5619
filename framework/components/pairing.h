// Checks by their traits that a drafter, a length policy and a verifier are compatible. This module must not know any
// of them by name.
#pragma once
#include "framework/components/host.h"
#include "framework/components/registry.h"

namespace foretoken {

// Three components as configurations: {"name": ..., options}.
struct ComponentConfigs {
  nlohmann::json drafter, policy, verifier;
};

// An Error unless the verifier is sound for every kind of node that the drafter may draw.
void expect_sound(const ComponentConfigs& configs, const Needs& needs, const Soundness& soundness);
// An Error where a budget sets Budget::confidence and the drafter does not implement it.
void expect_confidence(const ComponentConfigs& configs, const Budget& budget, const Needs& needs);
// An Error where a policy drafts but never gives the budget that Needs::whole asks for.
void expect_whole(const ComponentConfigs& configs, const Budget& most, const Needs& needs);
// An Error unless a component that is made of others (Host::drafter, Host::verifier) asks for what they need.
void expect_repeated(const ComponentConfigs& configs, const Host::Inner& inner, const Needs& needs,
                     const Soundness& soundness);
// What the drafter, and those that it is made of, use of the target's cache, as Entry::traits states it.
struct TargetUse {
  std::vector<Tap> taps;  // Needs::hidden of all, each once
  bool views = false;     // Needs::views_target of any
};
TargetUse use_of_target(const Registries& registries, const ComponentConfigs& configs, const ModelInfo& target);
// An Error where a drafter, or one that it is made of, reads states that are not among them.
void expect_taps(const ComponentConfigs& configs, std::span<const Tap> taps, const Host::Inner& inner,
                 const Needs& needs);

// Throws for unsound pairs, confidence and needs that are not implemented, as far as Entry::traits states the traits
// before any component is made and any model is loaded.
void expect_fit(const Registries& registries, const ComponentConfigs& configs, const ModelInfo& target);
// The same, and expect_whole: of what a user asked for. The conformance kit drafts under budgets of its own, which cut.
void expect_fit_whole(const Registries& registries, const ComponentConfigs& configs, const ModelInfo& target);

}  // namespace foretoken
