// The driver's encoder of tensor maps for the copy engine (TMA) of architecture 90. This header must not know what is
// described.
#pragma once
#include <cuda.h>

#include "kernels/cuda/device.cuh"

namespace foretoken {

// The driver's cuTensorMapEncodeTiled; nullptr where the driver has none.
inline auto map_encoder() {
  static const auto encoder = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (status != cudaSuccess) (void)cudaGetLastError();  // clears the error, which is an expected answer here
    return status == cudaSuccess && found == cudaDriverEntryPointSuccess
               ? reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)
               : nullptr;
  }();
  return encoder;
}

}  // namespace foretoken
