#include "kernels/cuda/cuda_backend.h"

#include <cuda_runtime.h>

#include <string>

#include "kernels/error.h"

namespace foretoken {

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  const int device = options.device;
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess)
    throw Error(std::string("device cuda: the CUDA driver answers \"") + cudaGetErrorString(status) +
                "\"; use a machine with a GPU and a driver, or \"device\": \"cpu\"");
  if (device < 0 || device >= devices)
    throw Error("device cuda:" + std::to_string(device) + ": this machine has " + std::to_string(devices) +
                " GPUs, numbered from 0; choose one of them, or \"device\": \"cpu\"");
  throw Error("device cuda: the CUDA backend is not there yet; use \"device\": \"cpu\"");
}

}  // namespace foretoken
