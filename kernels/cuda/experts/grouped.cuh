// The products of a mixture of experts: y[pair] = x[pair] W^T with the matrix of the pair's expert (kernels/experts.h).
// Which experts have pairs, and how many, is known on the device alone. This header must not know how a matrix is
// multiplied.
#pragma once
#include "kernels/cuda/products/cuda_matrix.cuh"
#include "kernels/cuda/products/packed_matrix.cuh"

namespace foretoken {

// The matrices of all experts, all of one form. They belong to the weights of ExpertWeights.
class GroupedMatrix final : public PreparedWeight {
 public:
  std::int64_t bytes() const override { return addresses.bytes(); }
  // Of the inputs, and of gated results.
  DType type() const { return dense_type; }
  // Whether gated results need no kernel of their own.
  bool gates() const { return tensor_cores && !biases && out % 16 == 0; }

  std::int64_t out = 0, in = 0;
  Tensor addresses;                      // u64 [experts]: of the numbers, or of the cells
  Tensor biases;                         // f32 [experts, out]; absent: there are none
  DType dense_type = DType::bf16;        // of the numbers; bf16 of cells
  const PackedMatrix* packed = nullptr;  // the first expert's, whose layout all have; null: dense
  bool tensor_cores = false;             // else by plain sums
};

// Arguments of the kernels.
struct Grouped {
  const void* const* matrices;  // [experts]: W [out, in]
  const int *pairs, *offsets, *touched;
  const void* x;  // of the matrices' type
  std::int64_t x_stride;
  int each;  // pairs that share a row of x
  int experts, in, out;
  int stages;
  PackedLayout layout;
  Epilogue to;  // row = pair
};

// y [pairs, out], or gated [pairs, out / 2]; x [rows or pairs, in] of the matrix' type, dense.
void grouped_product(CudaBackend& backend, const Tensor& y, bool gated, const Tensor& x, const Routing& routing,
                     const GroupedMatrix& matrix);

// grouped_codes.cu: the launch for packed matrices. `sets`: of eight pairs that a block multiplies at once: 1, 2 or 8.
void launch_grouped_codes(cudaStream_t stream, const Grid& grid, int sets, const Grouped& a);

}  // namespace foretoken
