// Result lines of earlier schemas as those of this version. This module must not know files.
#pragma once
#include <string>

#include "experiments/report/result.h"
#include "framework/components/registry.h"

namespace foretoken {

// A line of this or an earlier schema; `where` names it. Its run gets the keys and the components' options that it
// lacks since they were added later, as `registries` know them, and its key follows. An unknown schema is an Error.
Result converted(nlohmann::json line, const Registries& registries, const std::string& where);

}  // namespace foretoken
