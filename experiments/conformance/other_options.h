// Other values of a component's options than the given ones, from the types and ranges that its entry declares: what is
// right at the defaults may be wrong elsewhere. This module must not know any component by name.
#pragma once
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/components/registry.h"

namespace foretoken::conformance {

// Complete configs that differ from `given` in one number or boolean: at both ends of the declared range, and between;
// then some with random numbers in all these ranges. Options may depend on each other, so that a component may refuse
// some of them. An option without a declared least value is left as it is.
std::vector<nlohmann::json> other_options(const std::vector<Option>& options, const nlohmann::json& given);

template <class T> std::vector<nlohmann::json> other_options(const Registry<T>& registry, const nlohmann::json& given) {
  return other_options(registry.find(given).options, registry.complete(given));
}

}  // namespace foretoken::conformance
