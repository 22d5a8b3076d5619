// What a result should say of the machine and the program that made it. Knows nothing else.
#pragma once
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "kernels/backend.h"

namespace foretoken {

// "cpu", "cores", "os", "memory_gib".
nlohmann::json host_of();
// The same, and "instructions", "device", "description": of the run.
nlohmann::json machine_of(const Backend& backend);
std::string utc_now();  // "2026-11-21T08:00:00Z"

}  // namespace foretoken
