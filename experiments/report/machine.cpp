#include "experiments/report/machine.h"

#include <cmath>
#include <ctime>
#include <fstream>
#include <thread>

#include <unistd.h>

#include "experiments/report/gpu_state.h"
#include "kernels/cpu/cpu_backend.h"
#ifdef FORETOKEN_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif

namespace foretoken {
namespace {

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
