#include "experiments/report/gpu_state.h"

#include <memory>

#include <dlfcn.h>

namespace foretoken {
namespace {

// The library, open and initialized. Of its C interface only what is called here is declared.
class Nvml {
 public:
  using Device = struct nvmlDevice_st*;

  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    const auto start = function<int()>("nvmlInit_v2");
    ready_ = start && start() == 0;
  }
  ~Nvml() {
    if (const auto stop = function<int()>("nvmlShutdown"); ready_ && stop) stop();
    if (library_) ::dlclose(library_);
  }
  Nvml(const Nvml&) = delete;

  // Null where there is no such GPU.
  Device device(const std::string& address) const {
    const auto find = function<int(const char*, Device*)>("nvmlDeviceGetHandleByPciBusId_v2");
    Device found = nullptr;
    return ready_ && find && find(address.c_str(), &found) == 0 ? found : nullptr;
  }
  std::optional<std::string> driver() const {
    char text[80] = {};
    const auto ask = function<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
    return ask && ask(text, sizeof text) == 0 ? std::optional<std::string>(text) : std::nullopt;
  }
  // A number that a function writes behind its last argument.
  template <class... Arguments>
  std::optional<long> number(const char* name, Device device, Arguments... arguments) const {
    unsigned value = 0;
    const auto ask = function<int(Device, Arguments..., unsigned*)>(name);
    return ask && ask(device, arguments..., &value) == 0 ? std::optional<long>(value) : std::nullopt;
  }

 private:
  template <class F> F* function(const char* name) const {
    return library_ ? reinterpret_cast<F*>(::dlsym(library_, name)) : nullptr;
  }

  void* library_;
  bool ready_ = false;
};

}  // namespace

void add_gpu_state(const std::string& address, MachineInfo& machine) {
  constexpr int kSm = 1, kMemory = 2;  // nvmlClockType_t
  const Nvml nvml;
  const Nvml::Device device = nvml.device(address);
  if (!device) return;
  machine.driver = nvml.driver();
  if (const auto limit = nvml.number("nvmlDeviceGetEnforcedPowerLimit", device))
    machine.power_limit_watts = double(*limit) / 1000;
  const MachineInfo::Clocks clocks{.sm = nvml.number("nvmlDeviceGetClockInfo", device, kSm),
                                   .memory = nvml.number("nvmlDeviceGetClockInfo", device, kMemory),
                                   .sm_most = nvml.number("nvmlDeviceGetMaxClockInfo", device, kSm)};
  if (clocks.sm || clocks.memory || clocks.sm_most) machine.clocks_mhz = clocks;
}

}  // namespace foretoken
