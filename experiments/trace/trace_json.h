// Rounds and steps of a trace as JSON, and back. Numbers have nine significant digits. This module must not know files.
#pragma once
#include <nlohmann/json.hpp>

#include "experiments/trace/trace.h"

namespace foretoken {

nlohmann::json to_json(const TracedStep& step);

// A step of a trace with these requests. What no recorder writes is an Error that begins with `where`.
TracedStep step_of(const nlohmann::json& line, std::size_t requests, bool dense, const std::string& where);

}  // namespace foretoken
