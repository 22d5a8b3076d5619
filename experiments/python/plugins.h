// Plugins (shared libraries, framework/components/plugin.h) in a process where this module is one library among many.
#pragma once
#include <nlohmann/json.hpp>

namespace foretoken::python {

// A run or a sweep as it is given to the C++ side: without the names that stand for components from Python among its
// plugins, since those are registered already. Where it names plugins, the framework's symbols in this module become
// visible to them.
nlohmann::ordered_json prepared(nlohmann::ordered_json document);

}  // namespace foretoken::python
