// State that the CUDA runtime keeps per thread, and per kernel and device.
#include <map>
#include <mutex>
#include <utility>

#include "kernels/cuda/device.cuh"

namespace foretoken {
namespace {

thread_local std::int64_t shared_memory_of_block = 0;

// Bytes of dynamic shared memory of one kernel on one device.
struct Allowance {
  std::int64_t now = 0;    // the attribute's current value
  std::int64_t most = 0;   // the attribute's greatest value
  std::int64_t fixed = 0;  // static bytes of the kernel
};

Allowance allowance_of(const char* operation, const void* kernel, int device) {
  cudaFuncAttributes of = {};
  int most = 0;
  check(cudaFuncGetAttributes(&of, kernel), operation);
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), operation);
  const std::int64_t fixed = std::int64_t(of.sharedSizeBytes);
  return {of.maxDynamicSharedSizeBytes, most - fixed, fixed};
}

std::mutex mutex;
std::map<std::pair<const void*, int>, Allowance> allowances;  // by kernel and device

// The allowance of a kernel on the current device, raised to its greatest value where `bytes` are more than it is now
// and no more than that. Called under `mutex`.
const Allowance& raised(const char* operation, const void* kernel, std::int64_t bytes) {
  int device = 0;
  check(cudaGetDevice(&device), operation);
  auto at = allowances.find({kernel, device});
  if (at == allowances.end())
    at = allowances.emplace(std::pair(kernel, device), allowance_of(operation, kernel, device)).first;
  Allowance& a = at->second;
  if (bytes > a.now && bytes <= a.most) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(a.most)), operation);
    a.now = a.most;
  }
  return a;
}

}  // namespace

void make_current(int device, std::int64_t shared_memory) {
  int now = -1;
  if (cudaGetDevice(&now) != cudaSuccess || now != device) check(cudaSetDevice(device), "choosing the GPU");
  shared_memory_of_block = shared_memory;
}

void allow_shared_memory(const char* operation, const void* kernel, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  const std::int64_t wanted = std::int64_t(bytes);
  const Allowance& a = raised(operation, kernel, wanted);
  const std::int64_t block = wanted + a.fixed;
  if (wanted > a.most || block > shared_memory_of_block)
    throw Error(std::string("cuda: ") + operation + " needs " + std::to_string(block) +
                " bytes of shared memory a block, and this GPU gives " + std::to_string(shared_memory_of_block) +
                "; use a smaller model or vocabulary, or \"device\": \"cpu\"");
}

bool try_shared_memory(const char* operation, const void* kernel, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  return std::int64_t(bytes) <= raised(operation, kernel, std::int64_t(bytes)).most;
}

}  // namespace foretoken
