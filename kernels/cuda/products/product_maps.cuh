// Tensor maps of the matrices of a product: boxes of 128 bytes of each row. This header must not know which kernel
// reads them.
#pragma once
#include "kernels/cuda/instructions/tensor_maps.cuh"
#include "kernels/cuda/products/matrix_boxes.cuh"

namespace foretoken {

// Requires that the driver has an encoder, and that addresses, strides and widths meet its alignment.
template <int kDimensions> void describe(CUtensorMap& map, const Tensor& matrix, const cuuint64_t (&sizes)[kDimensions],
                                         const cuuint64_t (&strides)[kDimensions - 1],
                                         const cuuint32_t (&box)[kDimensions]) {
  cuuint32_t steps[kDimensions];
  for (cuuint32_t& s : steps) s = 1;
  const auto type = size_of(matrix.dtype()) == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  if (map_encoder()(&map, type, kDimensions, matrix.raw(), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                    CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    throw Error("cuda: the driver cannot describe a matrix of " + matrix.shape().text() +
                " to the copy engine; update the driver, or use \"device\": \"cpu\"");
}

inline cuuint64_t row_bytes(const Tensor& m) { return cuuint64_t(m.row_stride() * size_of(m.dtype())); }
inline cuuint32_t box_width(const Tensor& m) { return cuuint32_t(kBoxBytes / size_of(m.dtype())); }

// Boxes of `rows` rows of a matrix of bf16, or of numbers of 8 bits.
inline void plain_map(CUtensorMap& map, const Tensor& m, int rows) {
  describe<2>(map, m, {cuuint64_t(m.dim(1)), cuuint64_t(m.dim(0))}, {row_bytes(m)}, {box_width(m), cuuint32_t(rows)});
}
// Boxes of `rows` rows, alternately eight from the first half of the matrix and eight from the second.
inline void gated_map(CUtensorMap& map, const Tensor& m, int rows) {
  const cuuint64_t row = row_bytes(m), half = cuuint64_t(m.dim(0)) / 2;
  describe<4>(map, m, {cuuint64_t(m.dim(1)), 8, 2, half / 8}, {row, half * row, 8 * row},
              {box_width(m), 8, 2, cuuint32_t(rows) / 16});
}

// Boxes of a matrix, of both halves where its product is gated.
inline void matrix_map(CUtensorMap& map, const Tensor& m, int rows, bool gated) {
  gated ? gated_map(map, m, rows) : plain_map(map, m, rows);
}

inline bool aligned(const Tensor& t, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(t.raw()) % std::uintptr_t(bytes) == 0 &&
         t.row_stride() * size_of(t.dtype()) % bytes == 0;
}

}  // namespace foretoken
