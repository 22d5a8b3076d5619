// Entries of components of tests, and the traits that they state.
#pragma once
#include <utility>

#include "framework/components/registry.h"

namespace foretoken::test {

// Whatever the options and the target are.
template <class Traits> auto states(Traits traits) {
  return [traits = std::move(traits)](const nlohmann::json&, const ModelInfo&) { return traits; };
}
// Those of another component.
template <class T> auto states_those_of(const Registry<T>& registry, const nlohmann::json& config) {
  return [registry, config](const nlohmann::json&, const ModelInfo& target) { return registry.traits(config, target); };
}
// An entry without options.
template <class T, class Traits, class Make> Entry<T> entry_that(Traits traits, Make make) {
  return {"", "", {}, std::move(make), std::move(traits)};
}

}  // namespace foretoken::test
