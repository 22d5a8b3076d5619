// The CUDA device. This folder is the only one with CUDA headers; this header has none, so that anyone may include it.
#pragma once
#include <memory>

#include "kernels/backend.h"

namespace foretoken {

// "cuda": the operations on GPU number `device`. Throws Error where there is no such GPU or no CUDA backend in this build.
std::unique_ptr<Backend> make_cuda_backend(int device);

}  // namespace foretoken
