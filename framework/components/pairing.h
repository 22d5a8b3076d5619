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

// An Error unless the verifier is sound for every kind of node that the drafter may draw, and for how it draws them
// (Needs::races).
void expect_sound(const ComponentConfigs& configs, const Needs& needs, const Soundness& soundness);
// An Error where a budget sets Budget::confidence and the drafter does not implement it.
void expect_confidence(const ComponentConfigs& configs, const Budget& budget, const Needs& needs);
// An Error where a policy drafts but never gives the budget that Needs::whole asks for.
void expect_whole(const ComponentConfigs& configs, const Budget& most, const Needs& needs);
// The traits of all three, known before any component is made and any model is loaded.
struct StatedTraits {
  Needs needs;
  PolicyTraits policy;
  Soundness soundness;
};
// An Error for needs that are not implemented, for unsound pairs, and for confidence that is not served.
StatedTraits fitting_traits(const Registries& registries, const ComponentConfigs& configs, const ModelInfo& target);
// The same, and expect_whole: of what a user asked for. The conformance kit drafts under budgets of its own, which cut.
void expect_fit_whole(const Registries& registries, const ComponentConfigs& configs, const ModelInfo& target);

}  // namespace foretoken
