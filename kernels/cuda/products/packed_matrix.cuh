// A matrix of codes on the device, in the order in which tensor cores hold the first operand of a product. It consists
// of cells: 8 outputs x 128 inputs, first their codes, then their scales. Cells of the same inputs are contiguous, so
// that those of any range of outputs are one copy.
//
// Lane l of a warp holds, of each 16 inputs, numbers 2 (l % 4) and the next, and the eighth after both, of output l /
// 4: the two registers of those eight outputs in mma.m16n8k16 and in wgmma with the operand in registers. Codes of 4
// bits: [32 lanes, 4 words], a word for 32 inputs; of 8 bits: [2, 32 lanes, 4 words], a word for 16. Pair i of a word:
// bits 4 i and 4 i + 16 on, or bytes i and i + 2. Scales: [groups of the cell, 8 outputs], ScaleForm's bytes each. 2:4
// weights are laid out as codes of 8 bits with a scale of 16 bits for each 16 inputs (codes.cuh).
//
// This header must not know formats of checkpoints, nor the kernels that read cells.
#pragma once
#include "kernels/cuda/products/codes.cuh"
#include "kernels/cuda/products/cuda_matrix.cuh"

namespace foretoken {

constexpr int kCellOutputs = 8, kCellInputs = 128;
constexpr int code_bytes(Code code) { return kCellOutputs * kCellInputs * bits_of(code) / 8; }

struct PackedLayout {
  Code code;
  ScaleForm form;
  int group_log;         // 2^group_log inputs of a cell share a scale; at most 128
  int eights;            // of outputs: cells of the same inputs; even
  int cell;              // bytes of a cell
  const float* numbers;  // Code::table: f32 [16]

  constexpr int scale_bytes() const { return (kCellInputs >> group_log) * kCellOutputs * bytes_of(form); }
  // Where a cell begins, in bytes: of inputs 128 `piece` and outputs 8 `eight` on.
  constexpr std::int64_t at(int piece, int eight) const { return (std::int64_t(piece) * eights + eight) * cell; }
};

struct PackedRoutes;

class PackedMatrix final : public CudaMatrix {
 public:
  std::int64_t bytes() const override { return cells.bytes(); }
  const unsigned char* data() const { return cells.data<unsigned char>(); }

  // packed_product.cu
  DType type() const override { return DType::bf16; }
  bool gates(CudaProducts& products, const ProductInput& input) const override;
  void multiply(CudaProducts& products, const ProductResult& result, const ProductInput& input) const override;
  void embed(CudaBackend& backend, const Tensor& tokens, const Tensor& x) const override;

  std::int64_t out = 0, in = 0;
  PackedLayout layout = {};
  Tensor cells;    // u8 [inputs / 128, eights of outputs, bytes of a cell]
  Tensor numbers;  // of Code::table
  std::shared_ptr<const PackedRoutes> routes;
};

// The weight in cells; nullptr where it has none: inputs that are not a multiple of 128, groups that do not divide a
// cell or consist of cells, columns in another order, a code that means NaN.
std::shared_ptr<PackedMatrix> packed(CudaBackend& backend, const Weight& weight);

// The same matrix with its scales in a form that it has in common with others; nullptr where one has no parts there. As
// of packed(), its routes are not chosen.
std::shared_ptr<PackedMatrix> in_form(CudaBackend& backend, const PackedMatrix& m, ScaleForm form);

// The same matrix in bf16 [out, in].
Tensor unpacked(CudaBackend& backend, const PackedMatrix& m);

// Calls f with an Unpack of the layout's types.
template <class F> void with_unpack(const PackedLayout& layout, F f) {
  using enum ScaleForm;
  const auto form = layout.form;
  switch (layout.code) {
    case Code::int4:
      return form == bf16        ? f(Unpack<Code::int4, bf16>())
             : form == bf16_zero ? f(Unpack<Code::int4, bf16_zero>())
             : form == pair      ? f(Unpack<Code::int4, pair>())
             : form == pair_zero ? f(Unpack<Code::int4, pair_zero>())
             : form == affine    ? f(Unpack<Code::int4, affine>())
                                 : f(Unpack<Code::int4, f32_all>());
    case Code::int8:
      return form == bf16  ? f(Unpack<Code::int8, bf16>())
             : form == f32 ? f(Unpack<Code::int8, f32>())
                           : f(Unpack<Code::int8, f32_all>());
    case Code::e4m3:
      return form == bf16 ? f(Unpack<Code::e4m3, bf16>()) : f(Unpack<Code::e4m3, pair>());
    case Code::e2m1:
      return f(Unpack<Code::e2m1, bf16>());
    case Code::sparse:
      return f(Unpack<Code::sparse, bf16>());
    case Code::table:
      return f(Unpack<Code::table, f32>());
  }
}

}  // namespace foretoken
