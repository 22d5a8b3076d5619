// The backend that tests of attention share, and copies of layouts and caches on it.
#pragma once
#include <memory>

#include "kernels/layout.h"
#include "tests/kernels/scenario.h"
#include "tests/support/gpu.h"

namespace foretoken::test {

// A bound of the context so loose that the sums of its chunks do not fit: one block takes each tile, and none share it.
inline constexpr int kUnbounded = 1 << 29;

inline Backend& gpu() {
  static const std::unique_ptr<Backend> backend = make_gpu({});
  return *backend;
}

inline Layout on_gpu(Layout l, Backend& backend = gpu()) {
  for (Tensor* t : columns_of(l))
    if (*t) *t = backend.upload(*t);
  return l;
}

inline KvLayer on_gpu(KvLayer kv, Backend& backend = gpu()) {
  kv.pool = backend.upload(kv.pool);
  return kv;
}

inline Tensor fetched(const Tensor& t) {
  const Tensor host = Tensor::host(t.shape(), t.dtype());
  gpu().copy(t, host);
  return host;
}

// The same as f32, of f32 or bf16.
inline Tensor fetched_wide(const Tensor& t) {
  const Tensor host = fetched(t);
  if (t.dtype() == DType::f32) return host;
  const Tensor wide = Tensor::host(t.shape(), DType::f32);
  for (std::int64_t i = 0; i < wide.elements(); ++i) wide.data<float>()[i] = float(host.data<bf16>()[i]);
  return wide;
}

}  // namespace foretoken::test
