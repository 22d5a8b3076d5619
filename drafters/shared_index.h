// The option "index" of drafters that remember what they saw: for each request alone, or for all of an engine. This
// module must not know what they remember.
#pragma once
#include <string>

#include <nlohmann/json.hpp>

namespace foretoken {

// Whether the option "index" is "shared"; an Error where it is neither that nor "request".
bool shares_index(const nlohmann::json& options, const std::string& drafter);

}  // namespace foretoken
