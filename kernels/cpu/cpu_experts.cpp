// Products of mixtures of experts: the rows of one expert become one product, so that each matrix of an expert with
// pairs is read once. Bytes: those of the touched experts' matrices, in the order of the experts; the rows beside them
// are small. Every product has all threads; a row's bits are those of CpuBackend::linear with its experts.
#include <cstring>

#include "kernels/cpu/cpu_backend.h"

namespace foretoken {

Tensor CpuBackend::by_expert(const Tensor& x, const Routing& routing, std::int64_t width,
                             const std::function<Tensor(std::size_t e, const Tensor& xe)>& f) {
  const std::int64_t count = routing.count(), each = x.dim(0) == count ? 1 : routing.used;
  const std::int32_t *const offsets = routing.offsets.data<std::int32_t>(), *const pairs =
                                                                                routing.pairs.data<std::int32_t>();
  const Tensor y = allocate({count, width}, DType::f32);
  for (int e = 0; e < routing.experts; ++e) {
    const std::int64_t first = offsets[e], n = offsets[e + 1] - first;
    if (n == 0) continue;
    const Tensor xe = allocate({n, x.dim(1)}, DType::f32);
    for_rows(n, x.dim(1), [&](std::int64_t i) {
      std::memcpy(xe.row<float>(i), x.row<float>(pairs[first + i] / each), std::size_t(x.dim(1)) * sizeof(float));
    });
    const Tensor ye = f(std::size_t(e), xe);
    for_rows(n, width, [&](std::int64_t i) {
      std::memcpy(y.row<float>(pairs[first + i]), ye.row<float>(i), std::size_t(width) * sizeof(float));
    });
  }
  return y;
}

Tensor CpuBackend::grouped_linear(const Tensor& x, const Routing& routing, const ExpertWeights& experts) {
  expect_grouped(x, routing, experts);
  return by_expert(x, routing, experts.out,
                   [&](std::size_t e, const Tensor& xe) { return linear(xe, experts.matrices[e]); });
}

void CpuBackend::expert_feed_forward(Tensor x, const Tensor& h, const Routing& routing, const ExpertWeights& gate_up,
                                     const ExpertWeights& down) {
  expect_grouped(h, routing, gate_up);
  const Tensor y = by_expert(h, routing, down.out, [&](std::size_t e, const Tensor& xe) {
    const Weight &first = gate_up.matrices[e], &second = down.matrices[e];
    const auto packed_first = packed(first), packed_second = packed(second);
    if (!can_gate(first, second, *packed_second)) return linear(silu_mul(linear(xe, first)), second);
    const Tensor ye = allocate({xe.dim(0), second.out}, DType::f32);
    multiply(gated(arranged(xe, *packed_first), *packed_first, *packed_second), *packed_second, ye, false);
    return ye;
  });
  add_shares(x, y, routing);
}

}  // namespace foretoken
