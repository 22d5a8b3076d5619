// `foretoken list`: the registered components with options, defaults, sources and plugins. This module must not know
// any component.
#pragma once
#include <string>

#include "framework/components/registry.h"

namespace foretoken {

std::string list_registered(const Registries& registries, bool as_json);

}  // namespace foretoken
