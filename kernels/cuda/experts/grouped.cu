// grouped_linear, expert_feed_forward, group_experts: y[pair] = x[pair] W^T with the matrix of the pair's expert, W
// [out, in] of each expert. Bytes: the matrices of the touched experts, once for 64 pairs of an expert: 2 * out * in
// each in bf16; pairs * (2 in + 4 out) beside them, x from L2. Operations: 2 * pairs * out * in.
#include <algorithm>
#include <vector>

#include "kernels/cuda/experts/grouped_kernel.cuh"
#include "kernels/cuda/products/dense_matrix.cuh"
#include "kernels/cuda/products/packed_routes.cuh"
#include "kernels/cuda/shared_memory.h"

namespace foretoken {
namespace {

// Any type and shape: a warp adds one output of a pair, each lane every 32nd product, k ascending, then as a tree.
// Reads the matrix again for each pair, from L1 where it fits.
template <class T> __global__ void __launch_bounds__(256) plain_kernel(const __grid_constant__ Grouped a) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int expert = __ldcg(a.touched + blockIdx.y);
  const int o = int(blockIdx.x) * 8 + int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  if (expert < 0 || o >= a.out) return;
  const T* const w = static_cast<const T*>(a.matrices[expert]) + std::int64_t(o) * a.in;
  for (int i = __ldcg(a.offsets + expert) + int(blockIdx.z); i < __ldcg(a.offsets + expert + 1); i += int(gridDim.z)) {
    const int pair = __ldcg(a.pairs + i);
    const T* const x = static_cast<const T*>(a.x) + pair / a.each * a.x_stride;
    float sum = 0;
    for (int k = lane; k < a.in; k += 32) sum = fmaf(to_float(w[k]), to_float(x[k]), sum);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) a.to.write(pair, o, sum, 0);
  }
}

constexpr int kBiasThreads = 256;

// y [pairs, out] += the bias of each pair's expert.
__global__ void bias_kernel(float* y, const float* biases, const int* chosen, int out) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int i = int(blockIdx.y * blockDim.x + threadIdx.x);
  if (i >= out) return;
  const std::int64_t pair = blockIdx.x;
  const int expert = __ldcg(chosen + pair);
  if (expert >= 0) y[pair * out + i] += biases[std::int64_t(expert) * out + i];  // else it is another rank's
}

// f32 [experts, out]; absent where no expert has a bias. One that has none has zeros.
Tensor stacked_biases(CudaBackend& backend, const ExpertWeights& w) {
  if (std::ranges::none_of(w.matrices, [](const Weight& m) { return bool(m.bias); })) return {};
  const Tensor all = backend.allocate({std::int64_t(w.matrices.size()), w.out}, DType::f32);
  const Tensor zeros = Tensor::host({w.out}, DType::f32);
  std::ranges::fill(zeros.values<float>(), 0.0f);
  for (std::size_t e = 0; e < w.matrices.size(); ++e)
    backend.copy(w.matrices[e].bias ? w.matrices[e].bias : zeros, all.rows(std::int64_t(e), 1).reshaped({w.out}));
  return all;
}

// Packs all alike, so that one kernel reads them: scales of another form than the others' are written in a common one.
// False where codes, groups or scales have none.
bool pack_alike(CudaBackend& backend, std::vector<Weight>& matrices) {
  const auto packed_of = [](const Weight& w) { return dynamic_cast<const PackedMatrix*>(w.prepared.get()); };
  const PackedMatrix* const first = packed_of(matrices.front());
  if (first == nullptr) return false;
  ScaleForm form = first->layout.form;
  for (const Weight& w : matrices) {
    const PackedMatrix* const m = packed_of(w);
    if (m == nullptr || m->layout.code != first->layout.code || m->layout.group_log != first->layout.group_log)
      return false;
    form = common_form(form, m->layout.form);
  }
  std::vector<std::shared_ptr<const PreparedWeight>> alike;
  for (const Weight& w : matrices) {
    alike.push_back(w.prepared);
    if (packed_of(w)->layout.form == form) continue;
    const std::shared_ptr<PackedMatrix> written = in_form(backend, *packed_of(w), form);
    if (written == nullptr) return false;
    written->routes = packed_routes(backend, *written);
    alike.back() = written;
  }
  for (std::size_t i = 0; i < matrices.size(); ++i) matrices[i].prepared = alike[i];
  return true;
}

// The matrix in bf16 or f32.
std::shared_ptr<const DenseMatrix> dense_of(CudaBackend& backend, const Weight& w) {
  if (const auto* const p = dynamic_cast<const PackedMatrix*>(w.prepared.get()))
    return std::make_shared<const DenseMatrix>(backend, unpacked(backend, *p));
  if (auto dense = std::dynamic_pointer_cast<const DenseMatrix>(w.prepared)) return dense;
  throw Error(
      "cuda: products of experts whose inputs are rounded are not supported; set dtype to a format of weights "
      "alone, or to bf16");
}

const GroupedMatrix& grouped_of(const ExpertWeights& w) {
  if (!w.prepared) throw Error("cuda: experts that were not grouped; pass them through Backend::group_experts once");
  return static_cast<const GroupedMatrix&>(*w.prepared);
}

// Sets of eight pairs of an expert that a block takes at once: no expert has more pairs than there are rows.
int sets_of(std::int64_t rows) { return rows <= 8 ? 1 : rows <= 16 ? 2 : 8; }

}  // namespace

void grouped_product(CudaBackend& backend, const Tensor& y, bool gated, const Tensor& x, const Routing& routing,
                     const GroupedMatrix& matrix) {
  const std::int64_t count = routing.count(), rows = routing.rows();
  if (count == 0) return;
  Grouped a = {};
  a.matrices = static_cast<const void* const*>(matrix.addresses.raw());
  a.pairs = routing.pairs.data<int>();
  a.offsets = routing.offsets.data<int>();
  a.touched = routing.touched.data<int>();
  a.x = x.raw();
  a.x_stride = x.row_stride();
  a.each = x.dim(0) == count ? 1 : routing.used;
  a.experts = routing.experts;
  a.in = int(matrix.in);
  a.out = int(matrix.out);
  a.to = Epilogue(y, {}, false, gated);
  const std::int64_t touched = std::min<std::int64_t>(routing.experts, count),
                     mean = (count + routing.experts - 1) / routing.experts;  // pairs of an expert
  Grid grid{dim3(1, unsigned(touched), 1), kGroupedThreads, 0, 1, backend.dependent_launch()};
  if (!matrix.tensor_cores) {
    grid.blocks.x = blocks_for(matrix.out, 8);
    grid.blocks.z = unsigned(std::min<std::int64_t>(mean, 64));
    grid.threads = 256;
    return with_type("a grouped product", matrix.dense_type, [&](auto* t) {
      launch_kernel("a grouped product", backend.cuda_stream(), grid, plain_kernel<std::remove_pointer_t<decltype(t)>>,
                    a);
    });
  }
  const int sets = sets_of(rows);
  if (matrix.packed != nullptr) a.layout = matrix.packed->layout;
  const std::int64_t stage = grouped_stage_bytes(a.layout.cell, 8 * sets);
  a.stages = grouped_stages(stage, backend.shared_memory());
  grid.shared = std::size_t(a.stages * stage);
  grid.blocks.x = blocks_for(a.to.out, gated ? kGroupedOuts / 2 : kGroupedOuts);
  grid.blocks.z = blocks_for(mean, 8 * sets);
  if (matrix.packed != nullptr) return launch_grouped_codes(backend.cuda_stream(), grid, sets, a);
  launch_kernel("a grouped product", backend.cuda_stream(), grid, grouped_kernel_of<DenseSource>(sets), a);
}

ExpertWeights CudaBackend::group_experts(std::vector<Weight> matrices) {
  enter();
  ExpertWeights w = Backend::group_experts(std::move(matrices));
  const auto grouped = std::make_shared<GroupedMatrix>();
  grouped->out = w.out;
  grouped->in = w.in;
  for (const Weight& m : w.matrices) (void)matrix_of(m);
  grouped->biases = stacked_biases(*this, w);
  std::vector<std::uint64_t> addresses;
  if (pack_alike(*this, w.matrices)) {
    grouped->packed = static_cast<const PackedMatrix*>(w.matrices.front().prepared.get());
    grouped->tensor_cores = true;
    for (const Weight& m : w.matrices)
      addresses.push_back(reinterpret_cast<std::uint64_t>(static_cast<const PackedMatrix*>(m.prepared.get())->data()));
  } else {
    for (Weight& m : w.matrices) {
      const std::shared_ptr<const DenseMatrix> dense = dense_of(*this, m);
      if (!addresses.empty() && dense->type() != grouped->dense_type)
        throw Error("cuda: some experts have numbers of f32 and some of bf16; set dtype to one of them");
      grouped->dense_type = dense->type();
      addresses.push_back(reinterpret_cast<std::uint64_t>(dense->values().raw()));
      m.prepared = dense;
    }
    grouped->tensor_cores = grouped->dense_type == DType::bf16 && w.in % 8 == 0;
  }
  grouped->addresses = upload(Tensor::host_copy<std::uint64_t>(addresses, DType::u64));
  w.prepared = grouped;
  return w;
}

Tensor CudaBackend::grouped_linear(const Tensor& x, const Routing& routing, const ExpertWeights& experts) {
  enter();
  expect_grouped(x, routing, experts);
  expect_width("grouped_linear", x, experts.in);
  const GroupedMatrix& matrix = grouped_of(experts);
  const Tensor y = allocate({routing.count(), experts.out}, DType::f32);
  grouped_product(*this, y, false, converted(*this, x, matrix.type()), routing, matrix);
  if (matrix.biases && routing.count() > 0)
    launch_kernel("biases of experts", stream_,
                  {dim3(unsigned(routing.count()), blocks_for(experts.out, kBiasThreads)), kBiasThreads, 0, 1,
                   dependent_launch()},
                  bias_kernel, y.data<float>(), matrix.biases.data<float>(), routing.chosen.data<int>(),
                  int(experts.out));
  return y;
}

void CudaBackend::expert_feed_forward(Tensor x, const Tensor& h, const Routing& routing, const ExpertWeights& gate_up,
                                      const ExpertWeights& down) {
  enter();
  expect_grouped(h, routing, gate_up);
  expect_width("expert_feed_forward", h, gate_up.in);
  const GroupedMatrix& first = grouped_of(gate_up);
  if (first.biases) return Backend::expert_feed_forward(x, h, routing, gate_up, down);
  const bool gates = first.gates();
  const Tensor from = converted(*this, h, first.type()),
               to = allocate({routing.count(), gates ? gate_up.out / 2 : gate_up.out}, first.type());
  grouped_product(*this, to, gates, from, routing, first);
  add_shares(x, grouped_linear(gates ? to : silu_mul(to), routing, down), routing);
}

}  // namespace foretoken
