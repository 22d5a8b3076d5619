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

// The driver, the power limit and the clocks of now of the GPU at this PCI address, as "0000:01:00.0". What the library
// does not say is left out, as all of it is where there is no library, or no such GPU.
void add_gpu_state(const std::string& address, MachineInfo& machine);

}  // namespace foretoken
