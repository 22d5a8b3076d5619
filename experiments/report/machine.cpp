#include "experiments/report/machine.h"

#include <cmath>
#include <ctime>
#include <fstream>
#include <memory>
#include <thread>

#include <dlfcn.h>
#include <unistd.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"

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

// The text after `key` in the first line of a file that begins with it, without quotes.
std::string field(const char* file, const std::string& key, const std::string& otherwise) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const auto begin = line.find_first_not_of(" \t:=\"", key.size());
    const auto end = line.find_last_not_of(" \t\"\n");
    if (begin != std::string::npos && end >= begin) return line.substr(begin, end - begin + 1);
  }
  return otherwise;
}

}  // namespace

void add_gpu_state(const std::string& address, MachineInfo& machine) {
  constexpr int kSm = 1, kMemory = 2;  // nvmlClockType_t
  const Nvml nvml;
  const Nvml::Device device = nvml.device(address);
  if (!device) return;
  machine.driver = nvml.driver();
  if (const auto limit = nvml.number("nvmlDeviceGetEnforcedPowerLimit", device))
    machine.power_limit_watts = double(*limit) / 1000;
  const GpuClocks clocks{.sm = nvml.number("nvmlDeviceGetClockInfo", device, kSm),
                         .memory = nvml.number("nvmlDeviceGetClockInfo", device, kMemory),
                         .sm_most = nvml.number("nvmlDeviceGetMaxClockInfo", device, kSm)};
  if (clocks.sm || clocks.memory || clocks.sm_most) machine.clocks_mhz = clocks;
}

MachineInfo host_of() {
  const double bytes = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  MachineInfo machine;
  machine.cpu = field("/proc/cpuinfo", "model name", "unknown");
  machine.os = field("/etc/os-release", "PRETTY_NAME", "unknown");
  machine.cores = int(std::thread::hardware_concurrency());
  machine.memory_gib = std::lround(bytes / (1 << 30));
  return machine;
}

MachineInfo machine_of(const Backend& backend) {
  MachineInfo machine = host_of();
  const auto* const cpu = dynamic_cast<const CpuBackend*>(&backend);
  machine.device = backend.name();
  machine.description = backend.description();
  if (cpu) {
    machine.instructions = cpu->operations().name;
    machine.threads = cpu->threads();
  }
#ifdef FORETOKEN_CUDA
  if (backend.name() == "cuda") add_gpu_state(cuda_address(), machine);
#endif
  return machine;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace foretoken
