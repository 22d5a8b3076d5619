// The description of the machine and the program in a result. This module must not know anything else.
#pragma once
#include <string>

#include "experiments/report/result.h"
#include "kernels/backend.h"

namespace foretoken {

// Processor, cores, operating system and memory; no device.
MachineInfo host_of();
// The same with the device: instructions and threads of a CPU, as they were chosen, or the state of a GPU.
MachineInfo machine_of(const Backend& backend);
std::string utc_now();  // "2026-11-21T08:00:00Z"

}  // namespace foretoken
