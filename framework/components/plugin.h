// Plugins: drafters, length policies and verifiers in a shared library that is built outside this tree. A plugin
// exports
//   extern "C" const char* foretoken_abi() { return foretoken::kAbi; }
//   extern "C" void foretoken_plugin(foretoken::Registries& registries) { registries.drafters.add("name", entry); }
// and is built against the installed package (drafters/template/CMakeLists.txt). This module knows registries and the
// dynamic linker; it must not know what is registered.
#pragma once
#include <filesystem>

#include "foretoken_abi.h"
#include "framework/components/registry.h"

namespace foretoken {

// Adds what the shared library at `path` registers. Its ABI is compared first. Any failure (no such file, not a shared
// library, a missing function, another ABI, an exception, a name that is taken, nothing registered) is an Error and
// leaves the registries unchanged. A library with the same bytes as a loaded one is not loaded again. A loaded library
// stays loaded until the process ends, so its objects may outlive the registries.
void load_plugin(const std::filesystem::path& path, Registries& registries);

}  // namespace foretoken
