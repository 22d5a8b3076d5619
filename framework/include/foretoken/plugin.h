// All that a plugin includes: `#include <foretoken/plugin.h>`. A plugin is a shared library of drafters, length
// policies and verifiers, built outside this tree against the installed package (drafters/template/CMakeLists.txt),
// that exports
//   extern "C" const char* foretoken_abi() { return foretoken::kAbi; }
//   extern "C" void foretoken_plugin(foretoken::Registries& registries) { registries.drafters.add("name", entry); }
// The headers behind this one may move; what they declare in the namespace `foretoken` is the interface.
#pragma once

// What the program and a plugin must agree on.
#include "foretoken_abi.h"

// What is written: a drafter, a length policy, a verifier; and how it is registered, with its options.
#include "framework/components/drafter.h"
#include "framework/components/length_policy.h"
#include "framework/components/registry.h"
#include "framework/components/verifier.h"

// What it may ask for: models, caches, the device, distributions after nodes of a tree.
#include "framework/components/host.h"
#include "framework/decode/node_distributions.h"

// How it says that something is wrong.
#include "kernels/error.h"
