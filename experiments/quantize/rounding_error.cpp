#include "experiments/quantize/rounding_error.h"

#include <cmath>
#include <vector>

#include "framework/model/convert.h"
#include "framework/model/in_parallel.h"

namespace foretoken {

double SquaredError::relative() const { return difference == 0 ? 0 : std::sqrt(difference / original); }

SquaredError& SquaredError::operator+=(const SquaredError& other) {
  difference += other.difference, original += other.original;
  return *this;
}

SquaredError rounding_error(const Weight& dense, const Weight& rounded) {
  const Tensor values = converted(dense.values, DType::f32);
  std::vector<SquaredError> rows(static_cast<std::size_t>(dense.out));
  in_parallel(dense.out, 4 * dense.in, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row(static_cast<std::size_t>(dense.in));
    for (std::int64_t o = begin; o < end; ++o) {
      decode_row(rounded, o, row);
      const float* original = values.row<float>(o);
      SquaredError& sum = rows[std::size_t(o)];
      for (std::size_t i = 0; i < row.size(); ++i) {
        const double w = double(original[i]), d = w - double(row[i]);
        sum += {d * d, w * w};
      }
    }
  });
  SquaredError all;
  for (const SquaredError& r : rows) all += r;
  return all;
}

}  // namespace foretoken
