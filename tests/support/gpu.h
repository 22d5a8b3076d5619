// The GPU of tests. FORETOKEN_TEST_SHARED_LIMIT, in bytes, limits the shared memory of its blocks (101376 on
// capabilities 8.6, 8.9 and 12.0).
#pragma once
#include <cstdlib>
#include <memory>

#include "kernels/cuda/cuda_backend.h"

namespace foretoken::test {

inline std::unique_ptr<Backend> make_gpu(CudaOptions options) {
  if (const char* limit = std::getenv("FORETOKEN_TEST_SHARED_LIMIT"); limit && options.shared_memory_limit == 0)
    options.shared_memory_limit = std::atoll(limit);
  return make_cuda_backend(options);
}

}  // namespace foretoken::test
