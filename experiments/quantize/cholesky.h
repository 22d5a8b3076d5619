// The Cholesky factor of a large matrix, block by block, so that nearly all of it is products of a device. This module
// must not know what the matrix is.
#pragma once
#include "kernels/backend.h"

namespace foretoken {

// Replaces the lower triangle of a symmetric f32 [n, n] in the memory of `host`, a device in host memory, by that of L
// with L L^T = a; what is above the diagonal is undefined before and after. False where `a` is not positive definite to
// the precision of f32. Work: n^3 / 3 multiplications and additions together, all but n^2 of them in Backend::linear.
bool factorize(Backend& host, Tensor a);

}  // namespace foretoken
