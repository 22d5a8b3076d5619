#include "framework/model/convert.h"

#include <cassert>
#include <cstring>

#include "framework/model/in_parallel.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

struct F16 {
  std::uint16_t bits;
  explicit operator float() const { return float_from_f16(bits); }
};

template <class From, class To> void convert_all(const Tensor& from, const Tensor& to) {
  const From* source = from.data<From>();
  To* target = to.data<To>();
  in_parallel(from.elements(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) target[i] = To(float(source[i]));
  });
}

void copy_all(const Tensor& from, const Tensor& to) {
  const std::int64_t size = size_of(from.dtype());
  in_parallel(from.elements(), 1, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to.data<char>() + begin * size, from.data<char>() + begin * size, std::size_t((end - begin) * size));
  });
}

}  // namespace

void convert(const Tensor& from, const Tensor& to) {
  assert(from.elements() == to.elements() && from.dense() && to.dense());
  const bool wide = to.dtype() == DType::f32;
  assert(wide || to.dtype() == DType::bf16);
  if (from.dtype() == to.dtype()) return copy_all(from, to);
  switch (from.dtype()) {
    case DType::f32:
      return convert_all<float, bf16>(from, to);
    case DType::bf16:
      return convert_all<bf16, float>(from, to);
    case DType::f16:
      return wide ? convert_all<F16, float>(from, to) : convert_all<F16, bf16>(from, to);
    default:
      throw Error(std::string("weights of type ") + name_of(from.dtype()) +
                  " are not supported; convert the checkpoint to F32, F16 or BF16");
  }
}

Tensor converted(const Tensor& from, DType type) {
  if (from.dtype() == type) return from;
  const Tensor to = Tensor::host(from.shape(), type);
  convert(from, to);
  return to;
}

}  // namespace foretoken
