// Components as the kit runs them: whatever they throw names them, and trees that a law could not read are refused
// before a law reads them. This module must not know any component by name.
#pragma once
#include "framework/components/registry.h"

namespace foretoken::conformance {

// Drafters' trees are held to what the engine expects of them (expect_tree, expect_distributions), and to one for each
// request, wherever they are asked for: laws look at them before the engine does, and ask drafters themselves.
Registries guarded(Registries registries);

}  // namespace foretoken::conformance
