// The description of the machine and the program in a result. This module must not know anything else.
#pragma once
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "kernels/backend.h"

namespace foretoken {

// "cpu", "cores", "os", "memory_gib".
nlohmann::json host_of();
// The same, and of the run: "device", "description", "instructions" and "threads" of the CPU, as they were chosen;
// driver, power limit and clocks of a GPU (gpu_state()).
nlohmann::json machine_of(const Backend& backend);
std::string utc_now();  // "2026-11-21T08:00:00Z"

}  // namespace foretoken
