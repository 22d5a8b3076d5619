// How far a quantized matrix is from the dense one. This module must not know where matrices come from.
#pragma once
#include "kernels/formats/format.h"

namespace foretoken {

struct SquaredError {
  double difference = 0, original = 0;  // sums of squares: of W - W', of W

  double relative() const;  // |W - W'| / |W|; 0 where both are 0
  SquaredError& operator+=(const SquaredError& other);
};

// Both [out, in]; the same for any number of threads.
SquaredError rounding_error(const Weight& dense, const Weight& rounded);

}  // namespace foretoken
