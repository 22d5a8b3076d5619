// Which instructions this machine has, and the backend that uses the best of them.
#include <fstream>
#include <string>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels/cpu/cpu_backend.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

std::string machine_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

#if defined(__x86_64__)
// Whether there are tiles of integers, and the system lets this process have them: it keeps their 8 KB for each thread
// only where it was asked to.
bool may_use_tiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return __builtin_cpu_supports("amx-int8") && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

}  // namespace

std::vector<const Operations*> cpu_operations() {
  std::vector<const Operations*> found;
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  const bool dots = vnni && __builtin_cpu_supports("avx512bf16");
  if (dots && may_use_tiles()) found.push_back(&operations_amx());
  if (dots) found.push_back(&operations_avx512bf16());
  if (vnni) found.push_back(&operations_avx512vnni());
  if (avx512) found.push_back(&operations_avx512());
  if (avx2) found.push_back(&operations_avx2());
#endif
  found.push_back(&operations_scalar());
  return found;
}

std::vector<std::string> cpu_instructions() {
  std::vector<std::string> names;
  for (const Operations* operations : cpu_operations()) names.push_back(operations->name);
  return names;
}

std::string CpuBackend::description() const {
  return machine_name() + ", " + operations_.name + ", " + std::to_string(pool_.threads()) +
         (pool_.threads() == 1 ? " thread" : " threads");
}

std::unique_ptr<Backend> make_cpu_backend(int threads, const std::string& instructions) {
  std::string known;
  for (const Operations* operations : cpu_operations()) {
    if (instructions.empty() || instructions == operations->name)
      return std::make_unique<CpuBackend>(threads, *operations);
    known += (known.empty() ? "" : ", ") + std::string(operations->name);
  }
  throw Error("this machine has no instructions '" + instructions + "'; it has " + known);
}

}  // namespace foretoken
