// Whether a drafter, a length policy and a verifier fit together, by what they say of themselves. What does not fit is
// refused in one sentence. This module must not know any of them by name.
#pragma once
#include "framework/components/registry.h"

namespace foretoken {

// Three components as configurations: {"name": ..., options}.
struct ComponentConfigs {
  nlohmann::json drafter, policy, verifier;
};

// An Error unless the verifier is sound for every kind of node that the drafter may draw.
void expect_sound(const ComponentConfigs& configs, const Needs& needs, const Soundness& soundness);
// An Error where a budget asks for confidence and the drafter does not serve it.
void expect_confidence(const ComponentConfigs& configs, const Budget& budget, const Needs& needs);

// Both, and that something serves what the drafter needs, as far as the entries say it before anything is made and any
// model is loaded.
void expect_fit(const Registries& registries, const ComponentConfigs& configs, const ModelInfo& target);

}  // namespace foretoken
