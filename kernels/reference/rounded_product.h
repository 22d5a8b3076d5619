// Products of the reference with rounded inputs, in plain loops: kernels/formats/activations/activation_format.h says
// what they are. This module must not know how the fast backends compute the same.
#pragma once
#include "kernels/weight.h"

namespace foretoken {

// The numbers that the codes of a weight represent, and the codes themselves.
struct PreparedCodes final : PreparedMatrix {
  PreparedCodes(Tensor matrix, Weight w) : PreparedMatrix(std::move(matrix)), codes(std::move(w)) {}
  Weight codes;
};

// x [rows, in] -> f32 [rows, out], with the bias of w, whose inputs are rounded.
Tensor rounded_product(const Tensor& x, const Weight& w);

}  // namespace foretoken
