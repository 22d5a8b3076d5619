// `foretoken list`: what is registered, with options, defaults, sources and the plugins it came from. Knows registries,
// not what is in them.
#pragma once
#include <string>

#include "framework/components/registry.h"

namespace foretoken {

std::string list_registered(const Registries& registries, bool as_json);

}  // namespace foretoken
