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
  std::int64_t shared_memory_limit = 0;  // bytes of shared memory that a block may have, as on a smaller GPU; 0: as
                                         // many as this GPU gives
  // For tests, which must see a wrong order of kernels and a library whose sums depend on the number of rows.
  bool slow_pushes = false;    // what is pushed lands some 100 us after the kernel behind the push may start
  bool doubt_library = false;  // invariant numerics take every algorithm of the library for one with other bits
};

// The number of GPUs; 0 where there is none, or no driver. Where the driver cannot say, as one that is too old, it is
// an Error.
int cuda_devices();

// "cuda": the operations on one GPU. Throws Error where there is no such GPU.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);

}  // namespace foretoken
