// The choice of a cuBLASLt algorithm for a product. Fast numerics: the library's first choice. Invariant numerics: the
// first that does not split K, since all of those add in the same order, whatever their tile (measured, and compared:
// see blas_check.cu). Of the algorithms that give the same bits, the fastest.
#include <algorithm>
#include <array>
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

cublasLtMatrixLayout_t layout(cudaDataType type, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                              int count, std::int64_t step) {
  cublasLtMatrixLayout_t made = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&made, type, std::uint64_t(rows), std::uint64_t(columns), stride),
             "describing a matrix");
  if (count > 1) {
    check_blas(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
               "describing a matrix");
    check_blas(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step),
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

struct Preference {
  cublasLtMatmulPreference_t it = nullptr;
  explicit Preference(int alignment) {
    check_blas(cublasLtMatmulPreferenceCreate(&it), "making a preference");
    const std::uint64_t workspace = kBlasWorkspace;
    const std::uint32_t bytes = std::uint32_t(alignment);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t a, const void* value, std::size_t size) {
      check_blas(cublasLtMatmulPreferenceSetAttribute(it, a, value, size), "making a preference");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &bytes, sizeof bytes),
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &bytes, sizeof bytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &bytes, sizeof bytes),
        set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &bytes, sizeof bytes);
  }
  ~Preference() { (void)cublasLtMatmulPreferenceDestroy(it); }
};

// A named type for std::vector, in which nvcc 13.0 does not compile the library's nameless one.
struct Algorithm {
  cublasLtMatmulAlgo_t it;
};

// Algorithms for y = W x of these matrices, those first that the library takes for the fastest.
std::vector<Algorithm> algorithms_for(void* handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t w,
                                      cublasLtMatrixLayout_t x, cublasLtMatrixLayout_t y, int alignment) {
  const Preference preference(alignment);
  constexpr int kMost = 32;
  static thread_local cublasLtMatmulHeuristicResult_t found[kMost];
  int count = 0;
  check_blas(cublasLtMatmulAlgoGetHeuristic(static_cast<cublasLtHandle_t>(handle), operation, w, x, y, y, preference.it,
                                            kMost, found, &count),
             "choosing an algorithm");
  std::vector<Algorithm> all;
  for (int i = 0; i < count; ++i) all.push_back({found[i].algo});
  return all;
}

}  // namespace

void Blas::describe(Plan& p, const Shape3& s) {
  check_blas(cublasLtMatmulDescCreate(&p.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check_blas(cublasLtMatmulDescSetAttribute(p.operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
             "describing a product");
  const std::int64_t slice = s.in / s.slices;
  p.w = layout(data_type(s.type), slice, s.out, s.in, s.slices, slice);
  p.x = layout(data_type(s.type), slice, s.rows, s.in, s.slices, slice);
  p.y = layout(data_type(s.y_type), s.out, s.rows, s.y_stride, s.slices, s.out * s.rows);
}

bool Blas::find_equal(Plan& plan, const Shape3& s, const Plan& of) const {
  describe(plan, s);
  const auto settings = settings_of(of.algorithm);
  for (const auto& a : algorithms_for(handle_, plan.operation, plan.w, plan.x, plan.y, s.alignment)) {
    if (settings_of(a.it) != settings) continue;
    plan.algorithm = a.it, plan.known = true;
    return true;
  }
  return false;
}

Blas::Plan& Blas::plan(const Shape3& s, const Tensor& x, const Tensor& matrix) {
  std::unique_ptr<Plan>& known = plans_[s];
  if (known) return *known;
  auto made = std::make_unique<Plan>();
  describe(*made, s);
  const std::vector<Algorithm> found = algorithms_for(handle_, made->operation, made->w, made->x, made->y, s.alignment);
  const int count = int(found.size());
  int chosen = 0;
  if (backend_.invariant())
    while (chosen < count && splits_k(found[std::size_t(chosen)].it)) ++chosen;
  made->known = chosen < count;
  if (made->known) made->algorithm = found[std::size_t(chosen)].it;
  for (int i = 0; made->known && i < count && made->likes < 6 && !splits_k(made->algorithm); ++i)
    if (!splits_k(found[std::size_t(i)].it)) made->alike[made->likes++] = found[std::size_t(i)].it;
  constexpr std::int64_t kFewest = 24, kMostRows = 512,
                         kLeast =
                             1 << 21;  // elsewhere the library's first choice is as fast, or the library is not used
  const bool matters =
      s.type == DType::bf16 && s.rows >= kFewest && s.rows <= kMostRows && s.rows % 8 == 0 && s.out * s.in >= kLeast;
  if (matters && made->likes > 1 && !backend_.recording()) choose(*made, s, x, matrix);
  known = std::move(made);
  return *known;
}

void Blas::choose(Plan& p, const Shape3& s, const Tensor& x, const Tensor& matrix) {
  constexpr int kTimes = 3;
  const Shape room{s.slices * s.rows * s.y_stride};
  Tensor first, mine, differs;
  try {
    first = backend_.allocate(room, s.y_type), mine = backend_.allocate(room, s.y_type),
    differs = backend_.allocate({1}, DType::i32);
  } catch (const OutOfMemory&) {  // no memory for the comparison; the library's first choice is kept
    return;
  }
  const cudaStream_t stream = backend_.cuda_stream();
  const float one = 1, zero = 0;
  float least = 1e30f;
  for (int i = 0; i < p.likes; ++i) {
    void* const y = i == 0 ? first.raw() : mine.raw();
    float time = 1e30f;
    for (int k = 0; k < kTimes; ++k) {
      // Evicts L2: the workspace is larger.
      check(cudaMemsetAsync(workspace_.raw(), 0, std::size_t(kBlasWorkspace), stream), "emptying the cache");
      const Mark from = backend_.mark();
      check_blas(
          cublasLtMatmul(static_cast<cublasLtHandle_t>(handle_), p.operation, &one, matrix.raw(), p.w, x.raw(), p.x,
                         &zero, y, p.y, y, p.y, &p.alike[i], workspace_.raw(), std::size_t(kBlasWorkspace), stream),
          "a product");
      const Mark to = backend_.mark();
      check(cudaStreamSynchronize(stream), "timing a product");
      time = std::min(time, float(backend_.seconds(from, to)));
    }
    if (time < 0.98f * least && (i == 0 || !differ(first, mine, differs, s))) least = time, p.algorithm = p.alike[i];
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
