// The GPU that tests of attention share, and layouts and caches moved to it.
#pragma once
#include <memory>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/layout.h"
#include "tests/kernels/scene.h"

namespace foretoken::testing {

inline Backend& gpu() {
  static const std::unique_ptr<Backend> backend = make_cuda_backend({});
  return *backend;
}

inline Layout on_gpu(Layout l) {
  for (Tensor* t : columns_of(l))
    if (*t) *t = gpu().upload(*t);
  return l;
}

inline KvLayer on_gpu(KvLayer kv) {
  kv.pool = gpu().upload(kv.pool);
  return kv;
}

}  // namespace foretoken::testing
