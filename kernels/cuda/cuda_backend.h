// The CUDA device. This folder is the only one with CUDA headers; this header includes none, so that other modules can
// include it.
#pragma once
#include <memory>
#include <string>

#include "kernels/backend.h"

namespace foretoken {

struct CudaOptions {
  int device = 0;          // number of the GPU
  bool invariant = false;  // every row's result is the same bits whatever else is in the batch; otherwise a product may
                           // choose its route by the number of rows
  int most_replays = 0;    // recorded bodies that are kept, the least recently used are dropped; 0: one for each 32 MiB
                           // of the GPU's memory and at least 256 (one of 230 kernels takes 0.6 MiB)
  bool compare_replays = false;  // compares each replay's result with a second run of its body, and throws Error where
                                 // they differ. Always on in builds without NDEBUG
  // Bytes of shared memory of a block, at most, to emulate a smaller GPU; 0: the GPU's limit.
  std::int64_t shared_memory_limit = 0;
  // For tests, which must detect a wrong order of kernels, and a library whose sums depend on the number of rows.
  bool slow_pushes = false;    // pushed bytes arrive about 100 us after the kernel after the push may start
  bool doubt_library = false;  // invariant numerics treat every algorithm of the library as one with different bits
};

// The number of GPUs; 0 where there is none, or no driver. Where the driver cannot say, as one that is too old, it is
// an Error.
int cuda_devices();

// The PCI address of a GPU, "0000:01:00.0"; empty where there is none.
std::string cuda_address(int device = 0);

// "cuda": the operations on one GPU. Throws Error where there is no such GPU, or where it cannot run the kernels.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options);

}  // namespace foretoken
