// A CUDA backend, the reference backend, and copies of tensors between them.
#pragma once
#include <gtest/gtest.h>

#include "kernels/reference/reference_backend.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/kernels/scenario.h"

namespace foretoken::test {

// Sums in f32 differ from the reference's by their order: 1e-5 of the greatest value. Intermediate values that are
// rounded to bf16 may round differently: 2^-8 of the greatest value.
constexpr double kSum = 1e-5, kRounding = 1.0 / 256;

// A copy on the host; bf16 numbers as f32.
inline Tensor on_host(Backend& backend, const Tensor& t) {
  Tensor h = Tensor::host(t.shape(), t.dtype());
  backend.copy(t, h);
  if (t.dtype() != DType::bf16) return h;
  Tensor f = Tensor::host(t.shape(), DType::f32);
  for (std::int64_t i = 0; i < h.elements(); ++i) f.data<float>()[i] = float(h.data<bf16>()[i]);
  return f;
}

class Cuda : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Backend> cuda = make_gpu({.device = 0, .invariant = GetParam()});
  ReferenceBackend reference;

  Tensor up(const Tensor& t) { return cuda->upload(t); }
  Tensor down(const Tensor& t) { return on_host(*cuda, t); }
  // Rows further apart than they are wide, NaN between them.
  Tensor strided(const Tensor& t, int gap) {
    Tensor wide = Tensor::host({t.dim(0), t.dim(1) + gap}, t.dtype());
    std::memset(wide.raw(), 0xff, std::size_t(wide.bytes()));
    Tensor buffer = up(wide);
    cuda->copy(t, buffer.columns(0, t.dim(1)));
    return buffer.columns(0, t.dim(1));
  }
  Layout up(Layout l) {
    for (Tensor* t : columns_of(l))
      if (*t) *t = up(*t);
    return l;
  }
  KvLayer up(KvLayer kv, const Tensor& pool) {
    kv.pool = pool;
    return kv;
  }
};

}  // namespace foretoken::test
