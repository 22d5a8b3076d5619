// The cuBLASLt descriptors of one product, shared by blas.cu, blas_plan.cu and blas_check.cu. This header must not know
// how products are run.
#pragma once
#include <memory>
#include <source_location>
#include <string>
#include <type_traits>

#include <cublasLt.h>

#include "kernels/cuda/products/blas.cuh"

namespace foretoken {

inline constexpr std::int64_t kBlasWorkspace = 64 << 20;  // bytes

inline void check_blas(cublasStatus_t status, const std::string& operation,
                       std::source_location where = std::source_location::current()) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error("cuda: cuBLASLt: " + operation + " failed: " + cublasLtGetStatusString(status) + " (" +
              where.file_name() + ":" + std::to_string(where.line()) + ")");
}

// An owner of one of the library's descriptors.
struct DestroyDescriptor {
  void operator()(cublasLtMatmulDesc_t it) const { (void)cublasLtMatmulDescDestroy(it); }
  void operator()(cublasLtMatrixLayout_t it) const { (void)cublasLtMatrixLayoutDestroy(it); }
  void operator()(cublasLtMatmulPreference_t it) const { (void)cublasLtMatmulPreferenceDestroy(it); }
};
template <class T> using Descriptor = std::unique_ptr<std::remove_pointer_t<T>, DestroyDescriptor>;

// Algorithms that may be offered and yet refused: another route is taken, which is no failure.
inline bool refused(cublasStatus_t status, const std::string& operation,
                    std::source_location where = std::source_location::current()) {
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return true;
  check_blas(status, operation, where);
  return false;
}

// A named type for std::vector, in which nvcc 13.0 does not compile the library's nameless one.
struct Blas::Algorithm {
  cublasLtMatmulAlgo_t it;
};

struct Blas::Plan {
  Descriptor<cublasLtMatmulDesc_t> operation;
  Descriptor<cublasLtMatrixLayout_t> w, x, y;
  cublasLtMatmulAlgo_t algorithm = {};  // unless `none`
  State state = State::none;
};

}  // namespace foretoken
