// Products by cuBLASLt: plans by shape, and split-K slices of the sum where numerics are invariant. This header must
// not know what is multiplied.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cuda/cuda_backend.cuh"

namespace foretoken {

// A product of at most `rows` rows, y f32 [n, out] = x W^T, y and x dense, by a kernel whose sums do not depend on the
// number of rows. Without a kernel the library multiplies exactly `rows` rows, padded with zeros.
struct FewRows {
  std::int64_t rows = 16;
  std::function<void(const Tensor& y, const Tensor& x, const Tensor& matrix)> multiply = nullptr;
};

class Blas {
 public:
  explicit Blas(CudaBackend& backend);
  ~Blas();
  Blas(const Blas&) = delete;

  // y = x W^T + b, or y += that. y f32 or bf16 [rows, out], x [rows, in] dense, matrix [out, in] dense of the type of
  // x, bias f32. Invariant numerics: the result has the bits of `few`; where the library's bits differ, slabs of the
  // rows are multiplied by `few`. Where the library has no algorithm: by `few`, or by exact_product.
  void run(const Tensor& y, const Tensor& x, const Tensor& matrix, const Tensor& bias, bool adds, const FewRows& few);

  // Lists the matrices for which the library's bits differ from those of few rows, and those for which it has no
  // algorithm; empty where there are none.
  std::string note() const;

 private:
  struct Shape3 {
    std::int64_t out, in, rows, y_stride;
    DType type, y_type;
    int slices, alignment;
    auto operator<=>(const Shape3&) const = default;
  };
  struct Algorithm;
  struct Plan;
  enum class State {
    none,       // the library has no admissible algorithm
    unchecked,  // it has one, whose bits are not compared as yet; fast numerics stay here
    same,       // its bits are those of few rows
    other       // they are not, or are taken not to be
  };
  std::string matrices_in(State state) const;  // of the plans in that state, listed
  Plan& plan(const Shape3& shape, const Tensor& x, const Tensor& matrix);
  // A plan with the descriptors of the operation and of the three matrices, as yet without an algorithm.
  static std::unique_ptr<Plan> described(const Shape3& shape);
  // The algorithms that the library offers, those first that it takes for the fastest; empty: it has none.
  std::vector<Algorithm> algorithms_for(const Plan& plan, int alignment) const;
  // The plan of `shape` with the algorithm whose settings are those of another plan, whose matrices may have other
  // types. Null: it is not among those that the library offers for these types.
  std::unique_ptr<Plan> find_equal(const Shape3& shape, const Plan& of) const;
  // Chooses the fastest of the algorithms `alike` that give the same bits (which is checked), measured with a matrix
  // that is not in L2. Waits for the device; some milliseconds, once for each shape. Keeps the library's choice where
  // there is no memory for the comparison.
  void choose(Plan& plan, const Shape3& shape, const Tensor& x, const Tensor& matrix,
              const std::vector<Algorithm>& alike);
  // The least of some times in seconds; infinite where the library refuses the algorithm.
  float time_of(const Plan& plan, const Algorithm& algorithm, void* y, const Tensor& x, const Tensor& matrix);
  bool differ(const Tensor& a, const Tensor& b, const Tensor& flag, const Shape3& shape);
  // False: the library refuses, and nothing is written.
  bool multiply(const Plan& plan, const Algorithm& algorithm, void* y, const Tensor& x, const Tensor& matrix,
                bool adds);
  // The same by the plan's own algorithm. A refused plan has none from then on.
  bool multiply(Plan& plan, void* y, const Tensor& x, const Tensor& matrix, bool adds);
  void add_slices(const Tensor& y, const Tensor& sums, int slices, const Tensor& bias, bool adds);

  // ---- invariant numerics (blas_check.cu) ----
  // Whether the plan gives the bits of `few`: compared once, with random rows and this matrix, in `scratch` (of y's
  // size) or in fresh memory. Waits for the device. Returns false and tries again next time where it cannot be compared
  // now.
  bool has_bits_of(const FewRows& few, Plan& plan, const Shape3& shape, void* scratch, const Tensor& matrix);
  bool compare(const FewRows& few, Plan& plan, const Shape3& shape, void* scratch, const Tensor& matrix);
  bool gives(Plan& plan, const Shape3& shape, void* scratch, const Tensor& x, const Tensor& matrix, const Tensor& sums);
  void multiply_few(const FewRows& few, const Tensor& y, const Tensor& x, const Tensor& matrix);
  void multiply_slabs(const FewRows& few, const Tensor& y, const Tensor& x, const Tensor& matrix, const Tensor& bias,
                      bool adds);

  CudaBackend& backend_;
  std::unique_ptr<void, void (*)(void*)> handle_;  // outlives the plans
  Tensor workspace_;
  std::map<Shape3, std::unique_ptr<Plan>> plans_;
};

}  // namespace foretoken
