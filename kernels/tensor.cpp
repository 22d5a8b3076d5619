#include "kernels/tensor.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>

#include <sys/mman.h>

#include "kernels/out_of_memory.h"

namespace foretoken {

const char* name_of(DType t) {
  constexpr const char* kNames[] = {"F32", "BF16", "F16", "I8", "U8", "I32", "I64", "U64", "F8_E4M3"};
  return kNames[int(t)];
}

float float_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t(bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1fu, fraction = bits & 0x3ffu;
  float f;
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, exact in float
    f = float(fraction) * 0x1p-24f;
    return sign ? -f : f;
  }
  const std::uint32_t u =
      exponent == 31 ? sign | 0x7f800000u | fraction << 13 : sign | (exponent + 112) << 23 | fraction << 13;
  std::memcpy(&f, &u, 4);
  return f;
}

std::string Shape::text() const {
  std::string s = "[";
  for (int i = 0; i < rank_; ++i) s += (i ? ", " : "") + std::to_string(dims_[i]);
  return s + "]";
}

Tensor::Tensor(std::shared_ptr<void> owner, void* data, Shape shape, DType dtype, Device device,
               std::int64_t row_stride)
    : owner_(std::move(owner)), data_(data), shape_(shape), dtype_(dtype), device_(device), row_stride_(row_stride) {
  if (row_stride_ < 0) row_stride_ = shape.rank() > 0 && shape[0] > 0 ? shape.elements() / shape[0] : 1;
}

namespace {

constexpr std::size_t kLine = 64;
#ifdef __SANITIZE_ADDRESS__  // it sees an access behind a tensor only where the allocation ends with it
constexpr std::size_t kSmall = 0;
#else
constexpr std::size_t kSmall = 12 * kLine;
#endif

// `bytes` bytes at a multiple of `grain`.
std::shared_ptr<void> aligned(std::size_t bytes, std::size_t grain) {
  void* const p = std::aligned_alloc(grain, bytes);
  if (!p) throw OutOfMemory::on_host(bytes);
  return {p, std::free};
}

// The same of a few bytes, in one allocation with the count of owners: steps of small models make thousands a second,
// and what is asked for aligned comes from no cache of the C library.
template <std::size_t bytes> std::shared_ptr<void> small() {
  struct Room {
    Room() {}  // uninitialised
    std::byte bytes_and_slack[bytes + kLine];
  };
  const auto room = std::make_shared<Room>();
  void* at = room->bytes_and_slack;
  std::size_t space = sizeof room->bytes_and_slack;
  return {room, std::align(kLine, bytes, at, space)};
}

}  // namespace

Tensor Tensor::host(Shape shape, DType dtype) {
  constexpr std::size_t kHuge = 2 << 20;
  const std::size_t wanted = std::size_t(shape.elements() * size_of(dtype)),
                    grain = wanted >= 2 * kHuge ? kHuge : kLine;
  const std::size_t bytes = std::max((wanted + grain - 1) / grain * grain, kLine);
  const std::shared_ptr<void> owner = bytes > kSmall       ? aligned(bytes, grain)
                                      : bytes == kLine     ? small<kLine>()
                                      : bytes <= 4 * kLine ? small<4 * kLine>()
                                                           : small<12 * kLine>();
  if (grain == kHuge)  // a page fault for 2 MiB instead of 4 KiB, where the system has such pages
    (void)madvise(owner.get(), bytes, MADV_HUGEPAGE);
  return Tensor(owner, owner.get(), shape, dtype);
}

bool Tensor::dense() const {
  return shape_.rank() == 0 || shape_[0] <= 1 || row_stride_ * shape_[0] == shape_.elements();
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t count) const {
  assert(rank() >= 1 && begin >= 0 && count >= 0 && begin + count <= dim(0));
  Tensor view = *this;
  view.data_ = static_cast<char*>(data_) + begin * row_stride_ * size_of(dtype_);
  view.shape_ = shape_.with_rows(count);
  return view;
}

Tensor Tensor::columns(std::int64_t begin, std::int64_t count) const {
  assert(rank() == 2 && begin >= 0 && begin + count <= dim(1));
  return Tensor(owner_, static_cast<char*>(data_) + begin * size_of(dtype_), {dim(0), count}, dtype_, device_,
                row_stride_);
}

Tensor Tensor::reshaped(Shape shape) const {
  assert(dense() && shape.elements() == elements());
  return Tensor(owner_, data_, shape, dtype_, device_);
}

}  // namespace foretoken
