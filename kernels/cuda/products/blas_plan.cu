// The choice of a cuBLASLt algorithm for a product. Fast numerics: the library's first choice. Invariant numerics: the
// first that does not split K, since all of those add in the same order, whatever their tile (measured, and compared:
// see blas_check.cu). Of the algorithms that give the same bits, the fastest.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cuda/memory/memory.cuh"
#include "kernels/cuda/products/blas_plan.cuh"

namespace foretoken {
namespace {

cudaDataType data_type(DType t) { return t == DType::f32 ? CUDA_R_32F : CUDA_R_16BF; }

template <class T>
__global__ void differ_kernel(const T* a, const T* b, int width, std::int64_t stride, std::int32_t* differs) {
  const int o = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (o < width && a[blockIdx.y * stride + o] != b[blockIdx.y * stride + o]) *differs = 1;
}

Descriptor<cublasLtMatrixLayout_t> layout(cudaDataType type, std::int64_t rows, std::int64_t columns,
                                          std::int64_t stride, int count, std::int64_t step) {
  cublasLtMatrixLayout_t it = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&it, type, std::uint64_t(rows), std::uint64_t(columns), stride),
             "describing a matrix");
  Descriptor<cublasLtMatrixLayout_t> made(it);
  if (count > 1) {
    check_blas(cublasLtMatrixLayoutSetAttribute(it, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
               "describing a matrix");
    check_blas(cublasLtMatrixLayoutSetAttribute(it, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step),
               "describing a matrix");
  }
  return made;
}

// One setting of an algorithm; all have 16 or 32 bits.
std::uint32_t setting_of(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t which) {
  std::uint32_t value = 0;
  std::size_t bytes = 0;
  check_blas(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, which, nullptr, 0, &bytes), "reading an algorithm");
  check_blas(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, which, &value, std::min(bytes, sizeof value), &bytes),
             "reading an algorithm");
  return value;
}

bool splits_k(const cublasLtMatmulAlgo_t& algorithm) {
  return setting_of(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) > 1;
}

// The public settings of an algorithm, but for the order of its blocks.
auto settings_of(const cublasLtMatmulAlgo_t& algorithm) {
  constexpr std::array kSettings = {CUBLASLT_ALGO_CONFIG_ID,
                                    CUBLASLT_ALGO_CONFIG_TILE_ID,
                                    CUBLASLT_ALGO_CONFIG_STAGES_ID,
                                    CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID,
                                    CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
                                    CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                    CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                    CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION};
  std::array<std::uint32_t, kSettings.size()> values;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = setting_of(algorithm, kSettings[i]);
  return values;
}

Descriptor<cublasLtMatmulPreference_t> preference(int alignment) {
  cublasLtMatmulPreference_t it = nullptr;
  check_blas(cublasLtMatmulPreferenceCreate(&it), "making a preference");
  Descriptor<cublasLtMatmulPreference_t> made(it);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t a, auto value) {
    check_blas(cublasLtMatmulPreferenceSetAttribute(it, a, &value, sizeof value), "making a preference");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t(kBlasWorkspace));
  for (const auto which : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(which, std::uint32_t(alignment));
  return made;
}

}  // namespace

std::unique_ptr<Blas::Plan> Blas::described(const Shape3& s) {
  auto p = std::make_unique<Plan>();
  cublasLtMatmulDesc_t operation = nullptr;
  check_blas(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  p->operation.reset(operation);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check_blas(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
             "describing a product");
  const std::int64_t slice = s.in / s.slices;
  p->w = layout(data_type(s.type), slice, s.out, s.in, s.slices, slice);
  p->x = layout(data_type(s.type), slice, s.rows, s.in, s.slices, slice);
  p->y = layout(data_type(s.y_type), s.out, s.rows, s.y_stride, s.slices, s.out * s.rows);
  return p;
}

std::vector<Blas::Algorithm> Blas::algorithms_for(const Plan& p, int alignment) const {
  const auto wanted = preference(alignment);
  constexpr int kMost = 32;
  static thread_local cublasLtMatmulHeuristicResult_t found[kMost];
  int count = 0;
  if (refused(cublasLtMatmulAlgoGetHeuristic(static_cast<cublasLtHandle_t>(handle_.get()), p.operation.get(), p.w.get(),
                                             p.x.get(), p.y.get(), p.y.get(), wanted.get(), kMost, found, &count),
              "choosing an algorithm"))
    return {};
  std::vector<Algorithm> all;
  for (int i = 0; i < count; ++i)
    if (found[i].state == CUBLAS_STATUS_SUCCESS) all.push_back({found[i].algo});
  return all;
}

std::unique_ptr<Blas::Plan> Blas::find_equal(const Shape3& s, const Plan& of) const {
  auto made = described(s);
  const auto settings = settings_of(of.algorithm);
  for (const Algorithm& a : algorithms_for(*made, s.alignment)) {
    if (settings_of(a.it) != settings) continue;
    made->algorithm = a.it, made->state = State::unchecked;
    return made;
  }
  return nullptr;
}

Blas::Plan& Blas::plan(const Shape3& s, const Tensor& x, const Tensor& matrix) {
  if (const auto known = plans_.find(s); known != plans_.end()) return *known->second;
  auto made = described(s);
  const std::vector<Algorithm> found = algorithms_for(*made, s.alignment);
  std::vector<Algorithm> alike;  // those that do not split K: they give the same bits (measured, and compared)
  for (const Algorithm& a : found)
    if (alike.size() < 6 && !splits_k(a.it)) alike.push_back(a);
  const std::vector<Algorithm>& admissible = backend_.invariant() ? alike : found;
  if (!admissible.empty()) made->algorithm = admissible[0].it, made->state = State::unchecked;
  constexpr std::int64_t kFewest = 24, kMostRows = 512,
                         kLeast =
                             1 << 21;  // elsewhere the library's first choice is as fast, or the library is not used
  const bool matters =
      s.type == DType::bf16 && s.rows >= kFewest && s.rows <= kMostRows && s.rows % 8 == 0 && s.out * s.in >= kLeast;
  if (matters && alike.size() > 1 && !splits_k(made->algorithm) && !backend_.recording())
    choose(*made, s, x, matrix, alike);
  return *plans_.emplace(s, std::move(made)).first->second;
}

float Blas::time_of(const Plan& p, const Algorithm& algorithm, void* y, const Tensor& x, const Tensor& matrix) {
  constexpr int kTimes = 3;
  constexpr float kNever = std::numeric_limits<float>::infinity();
  float time = kNever;
  for (int k = 0; k < kTimes; ++k) {
    // Evicts L2: the workspace is larger.
    check(cudaMemsetAsync(workspace_.raw(), 0, std::size_t(kBlasWorkspace), backend_.cuda_stream()),
          "emptying the cache");
    const Mark from = backend_.mark();
    if (!multiply(p, algorithm, y, x, matrix, false)) return kNever;
    const Mark to = backend_.mark();
    check(cudaStreamSynchronize(backend_.cuda_stream()), "timing a product");
    time = std::min(time, float(backend_.seconds(from, to)));
  }
  return time;
}

void Blas::choose(Plan& p, const Shape3& s, const Tensor& x, const Tensor& matrix,
                  const std::vector<Algorithm>& alike) {
  const Shape room{s.slices * s.rows * s.y_stride};
  Tensor first, mine, differs;
  try {
    first = backend_.allocate(room, s.y_type), mine = backend_.allocate(room, s.y_type),
    differs = backend_.allocate({1}, DType::i32);
  } catch (const OutOfMemory&) {  // no memory for the comparison; the library's first choice is kept
    return;
  }
  bool any = false;  // has run: `first` is its result
  float least = 0;
  for (const Algorithm& a : alike) {
    const float time = time_of(p, a, any ? mine.raw() : first.raw(), x, matrix);
    if (std::isinf(time)) continue;  // offered, and refused
    if (!any || (time < 0.98f * least && !differ(first, mine, differs, s))) least = time, p.algorithm = a.it;
    any = true;
  }
}

// Whether two results differ in any bit.
bool Blas::differ(const Tensor& a, const Tensor& b, const Tensor& flag, const Shape3& s) {
  const cudaStream_t stream = backend_.cuda_stream();
  const std::int64_t rows = s.slices * s.rows;
  std::int32_t differs = 0;
  check(cudaMemsetAsync(flag.raw(), 0, sizeof differs, stream), "comparing products");
  const auto compare = [&](auto* bits) {
    using T = std::remove_pointer_t<decltype(bits)>;
    launch_kernel("comparing products", stream, {dim3(unsigned(blocks_for(s.out, 256)), unsigned(rows)), 256},
                  differ_kernel<T>, static_cast<const T*>(a.raw()), static_cast<const T*>(b.raw()), int(s.out),
                  s.y_stride, flag.data<std::int32_t>());
  };
  if (s.y_type == DType::f32)
    compare(static_cast<std::uint32_t*>(nullptr));
  else
    compare(static_cast<std::uint16_t*>(nullptr));
  check(cudaMemcpyAsync(&differs, flag.raw(), sizeof differs, cudaMemcpyDeviceToHost, stream), "comparing products");
  check(cudaStreamSynchronize(stream), "comparing products");
  return differs != 0;
}

}  // namespace foretoken
