// What NVIDIA's management library (NVML) says of a GPU. It is part of the driver and loaded when it is asked, so that
// the program needs it neither to be built nor to start. This module must not know devices of this project.
#pragma once
#include <string>

#include "experiments/report/result.h"

namespace foretoken {

// The driver, the power limit and the clocks of now of the GPU at this PCI address, as "0000:01:00.0". What the library
// does not say is left out, as all of it is where there is no library, or no such GPU.
void add_gpu_state(const std::string& address, MachineInfo& machine);

}  // namespace foretoken
