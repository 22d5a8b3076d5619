// All that a plugin includes: `#include <foretoken/plugin.h>`. A plugin is a shared library of drafters, length
// policies and verifiers, built outside this tree against the installed package (drafters/template/CMakeLists.txt),
// that exports
//   extern "C" const char* foretoken_abi() { return foretoken::kAbi; }
//   extern "C" void foretoken_plugin(foretoken::Registries& registries) { registries.drafters.add("name", entry); }
// The headers behind this one may move; what they declare in the namespace `foretoken` is the interface.
#pragma once

// The ABI that the program and a plugin must have in common: foretoken::kAbi.
#include "foretoken_abi.h"

// The interfaces of drafters, length policies and verifiers; and their registration, with options.
#include "framework/components/drafter.h"
#include "framework/components/length_policy.h"
#include "framework/components/registry.h"
#include "framework/components/verifier.h"

// What the engine provides: models, caches, the device, distributions at nodes of a tree.
#include "framework/components/block_model.h"
#include "framework/components/host.h"
#include "framework/components/round_model.h"
#include "framework/decode/node_distributions.h"

// Error: thrown with a message for the user.
#include "kernels/error.h"
