// What a result should say of the machine and the program that made it. Knows nothing else.
#pragma once
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "kernels/backend.h"

namespace foretoken {

// "cpu", "cores", "instructions", "os", "memory_gib", "device" (of the run), "description".
nlohmann::json machine_of(const Backend& backend);
std::string utc_now();  // "2026-11-21T08:00:00Z"

}  // namespace foretoken
