// The CUDA device. This folder is the only one with CUDA headers; this header has none, so that anyone may include it.
#pragma once
#include <memory>

#include "kernels/backend.h"

namespace foretoken {

struct CudaOptions {
  int device = 0;          // number of the GPU
  bool invariant = false;  // every row's result is the same bits whatever else is in the batch; otherwise a product may
                           // choose by the number of rows
  int most_replays = 0;    // bodies that are kept recorded, the ones used last; 0: one for each 128 MiB of the GPU's
                           // memory and at least 256 (one of 230 kernels takes .6 MiB)
  bool compare_replays = false;  // each replay's result with that of its body, run again: an Error where they differ.
                                 // Builds without NDEBUG always do
};

// "cuda": the operations on one GPU. Throws Error where there is no such GPU.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);

}  // namespace foretoken
