// What NVIDIA's management library (NVML) says of a GPU. It is part of the driver and loaded when it is asked, so that
// the program needs it neither to be built nor to start. This module must not know devices of this project.
#pragma once
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace foretoken {

// {"driver": "580.65.06", "power_limit_watts": 700, "clocks_mhz": {"sm": 1980, "memory": 3201, "sm_most": 1980}} of the
// GPU at this PCI address, as "0000:01:00.0"; clocks are those of now. What the library does not say is left out; null
// where there is no library, or no such GPU.
nlohmann::json gpu_state(const std::string& address);

}  // namespace foretoken
