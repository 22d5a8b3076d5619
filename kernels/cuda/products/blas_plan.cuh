// The cuBLASLt descriptors of one product, shared by blas.cu, blas_plan.cu and blas_check.cu. This header must not know
// how products are run.
#pragma once
#include <source_location>
#include <string>

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

struct Blas::Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
  cublasLtMatmulAlgo_t alike[6];  // where `algorithm` does not split K: others that do not. They give the same bits
                                  // (measured, and compared)
  int likes = 0;
  bool known = false;  // the library has an admissible algorithm
  enum class Bits {
    unknown,
    same,
    other
  } bits = Bits::unknown;  // compared with those of few rows, where numerics are invariant

  ~Plan() {
    (void)cublasLtMatmulDescDestroy(operation);
    for (const cublasLtMatrixLayout_t layout : {w, x, y}) (void)cublasLtMatrixLayoutDestroy(layout);
  }
};

}  // namespace foretoken
