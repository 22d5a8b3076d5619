// Shared by all kernel files of this folder: checked calls, checked launches, and programmatic dependent launch. This
// header must not know the operations.
#pragma once
#include <source_location>
#include <string>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/error.h"
#include "kernels/tensor.h"

namespace foretoken {

// Throws Error with the operation, the file and the line unless `status` is success.
inline void check(cudaError_t status, const std::string& operation,
                  std::source_location where = std::source_location::current()) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // clears an error that is not sticky, so that the next call does not return it
  throw Error("cuda: " + operation + " failed: " + cudaGetErrorString(status) + " (" + where.file_name() + ":" +
              std::to_string(where.line()) + "); run it under compute-sanitizer, or use \"device\": \"cpu\"");
}

// Sets `device` as the GPU of this thread's CUDA calls, and `shared_memory` as the most bytes of shared memory of a
// block. The CUDA runtime keeps the current device per thread, so every operation of a backend begins with this: a
// backend may be used from any thread, beside backends on other GPUs. Takes some nanoseconds where the device is
// already current.
void make_current(int device, std::int64_t shared_memory);

// Allows `kernel` `bytes` bytes of dynamic shared memory in addition to its static shared memory, on the current
// device: sets the attribute that more than 48 KB require, once for each kernel and device. Throws Error where this
// exceeds the limit of a block.
void allow_shared_memory(const char* operation, const void* kernel, std::size_t bytes);
// Whether a block of `kernel` can have so many bytes; allows them where it can. Never lowers what was allowed.
bool try_shared_memory(const char* operation, const void* kernel, std::size_t bytes);

// Grid, block, dynamic shared memory in bytes, blocks of a cluster.
struct Grid {
  dim3 blocks;
  int threads = 0;
  std::size_t shared = 0;
  int cluster = 1;
  // Programmatic dependent launch: the kernel may start while the previous kernel still runs, and calls
  // wait_for_previous_kernels() before it reads what an earlier kernel wrote or writes anything. False before
  // architecture 90.
  bool dependent_launch = false;
};

// Queues kernel(arguments...) and checks the launch. `operation` is the name in an Error.
template <class... P, class... A> void launch_kernel(const char* operation, cudaStream_t stream, const Grid& grid,
                                                     void (*kernel)(P...), A&&... arguments) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
  if (grid.shared > 0) allow_shared_memory(operation, reinterpret_cast<const void*>(kernel), grid.shared);
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config = {};
  config.gridDim = grid.blocks, config.blockDim = dim3(unsigned(grid.threads)), config.dynamicSmemBytes = grid.shared,
  config.stream = stream;
  config.attrs = attributes;
  if (grid.cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs].val.clusterDim = {unsigned(grid.cluster), 1, 1};
    ++config.numAttrs;
  }
  if (grid.dependent_launch) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs].val.programmaticStreamSerializationAllowed = 1;
    ++config.numAttrs;
  }
  check(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...), operation);
}

// In blocks; clusters larger than the first run only on devices that can hold them.
constexpr int kPortableCluster = 8, kLargestCluster = 16;

// Blocks of the largest cluster of `kernel` that the device can run with `threads` threads and `shared` bytes a block.
// Where sixteen fit, sets the attribute that such launches require.
template <class... P> int largest_cluster(void (*kernel)(P...), int threads, std::int64_t shared) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension, attribute.val.clusterDim = {unsigned(kLargestCluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(kLargestCluster)), config.blockDim = dim3(unsigned(threads)),
  config.dynamicSmemBytes = std::size_t(shared);
  config.attrs = &attribute, config.numAttrs = 1;
  int clusters = 0;
  const bool fits = try_shared_memory("clusters", reinterpret_cast<const void*>(kernel), std::size_t(shared)) &&
                    cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess &&
                    cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess && clusters > 0;
  if (!fits) (void)cudaGetLastError();  // clears the error, which is an expected answer here
  return fits ? kLargestCluster : kPortableCluster;
}

// Waits until everything that was queued before this kernel is complete and visible (griddepcontrol.wait). In a kernel
// with Grid::dependent_launch every thread calls it, or passes a barrier after a thread that did. Before it, only
// weights and other memory that no kernel writes may be read, and what CudaBackend::reads_early() allows.
__device__ inline void wait_for_previous_kernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel start once every block has called this (griddepcontrol.launch_dependents); the next kernel still
// waits for the end of this one in wait_for_previous_kernels().
__device__ inline void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

using Bf16 = __nv_bfloat16;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(Bf16 x) { return __bfloat162float(x); }
__device__ inline void from_float(float& to, float x) { to = x; }
__device__ inline void from_float(Bf16& to, float x) { to = __float2bfloat16_rn(x); }

// Calls f(T*()) with T = float or Bf16, according to `type`; throws Error with the operation's name for any other type.
template <class F> void with_type(const char* operation, DType type, F f) {
  if (type == DType::f32) return f(static_cast<float*>(nullptr));
  if (type == DType::bf16) return f(static_cast<Bf16*>(nullptr));
  throw Error(std::string("cuda: ") + operation + " takes f32 or bf16, not " + name_of(type));
}

inline unsigned blocks_for(std::int64_t n, std::int64_t each) { return unsigned((n + each - 1) / each); }

}  // namespace foretoken
