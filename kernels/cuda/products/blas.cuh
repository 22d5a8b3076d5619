// Products by cuBLASLt: plans by shape, and slices of the sum where numerics are invariant. This room must not know
// what is multiplied.
#pragma once
#include <map>
#include <memory>
#include <tuple>

#include "kernels/cuda/cuda_backend.cuh"

namespace foretoken {

class Blas {
 public:
  explicit Blas(CudaBackend& backend);
  ~Blas();
  Blas(const Blas&) = delete;

  // y = x W^T + b, or y += that. y f32 or bf16 [rows, out], x [rows, in] dense, matrix [out, in] dense of the type of
  // x, bias f32.
  void run(const Tensor& y, const Tensor& x, const Tensor& matrix, const Tensor& bias, bool adds);

 private:
  struct Shape3 {
    std::int64_t out, in, rows, y_stride;
    DType type, y_type;
    int slices, alignment;
    auto operator<=>(const Shape3&) const = default;
  };
  struct Plan;
  const Plan& plan(const Shape3& shape, const Tensor& x, const Tensor& matrix);
  // Takes the fastest of the algorithms that give the same bits, which is compared, with a matrix that is not in L2.
  // Waits for the device; some milliseconds, once for each shape; leaves the choice to the library where there is no
  // memory to compare.
  void choose(Plan& plan, const Shape3& shape, const Tensor& x, const Tensor& matrix);
  bool differ(const Tensor& a, const Tensor& b, const Tensor& flag, const Shape3& shape);
  void multiply(const Shape3& shape, void* y, const Tensor& x, const Tensor& matrix, bool adds);

  CudaBackend& backend_;
  void* handle_ = nullptr;
  Tensor workspace_;
  std::map<Shape3, std::unique_ptr<Plan>> plans_;
};

}  // namespace foretoken
