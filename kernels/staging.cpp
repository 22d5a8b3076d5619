#include "kernels/staging.h"

#include <algorithm>
#include <cassert>

namespace foretoken {

void Staging::begin(std::int64_t bytes) {
  used_ = 0;
  if (mirror_.host && bytes <= mirror_.host.dim(0)) return;
  mirror_ = backend_.mirror(std::max<std::int64_t>(2 * bytes, 1 << 16));
}

Staging::Array Staging::array(Shape shape, DType dtype) {
  const std::int64_t at = used_, bytes = shape.elements() * size_of(dtype);
  used_ = (at + bytes + kAlignment - 1) / kAlignment * kAlignment;
  assert(used_ <= mirror_.host.dim(0));
  const auto view = [&](const Tensor& memory) {
    return Tensor(memory.owner(), memory.data<std::byte>() + at, shape, dtype, memory.device());
  };
  return {view(mirror_.host), view(mirror_.device)};
}

}  // namespace foretoken
