// How a device is measured that has no measurement of its own: by a large copy and a large product.
#include <algorithm>

#include "kernels/backend.h"
#include "kernels/time_of.h"

namespace foretoken {
namespace {

constexpr int kRepeats = 9;

double copied_bytes_a_second(Backend& b, bool host) {
  const int pieces = host ? 64 : 1;  // of a copy, for all threads of a host
  const std::int64_t bytes = host ? 256 << 20 : std::int64_t(4) << 30, piece = bytes / pieces;
  const Tensor from = b.allocate({bytes}, DType::u8), to = b.allocate({bytes}, DType::u8);
  b.copy(from, to);  // so that a host has mapped the memory
  return 2 * double(bytes) / time_of(b, kRepeats, [&] {
           b.for_each(pieces, [&](int i) { b.copy(from.rows(i * piece, piece), to.rows(i * piece, piece)); });
         });
}

double multiplied_operations_a_second(Backend& b, bool host) {
  const std::int64_t side = host ? 1024 : 8192;
  const Tensor numbers = Tensor::host({side, side}, DType::f32), gain = Tensor::host({side}, DType::f32);
  for (std::int64_t i = 0; i < side * side; ++i)
    numbers.data<float>()[i] = float(i * 2654435761u >> 8 & 0xffff) / 65536 - 0.5f;
  std::fill_n(gain.data<float>(), side, 1.0f);
  const Tensor half = Tensor::host({side, side}, DType::bf16);
  for (std::int64_t i = 0; i < side * side; ++i) half.data<bf16>()[i] = bf16(numbers.data<float>()[i]);
  const Weight w = b.prepare(Weight::dense(b.upload(half)));
  const Tensor x = b.upload(numbers), g = b.upload(gain);
  return 2 * double(side) * double(side) * double(side) / time_of(b, kRepeats, [&] { b.norm_linear(x, g, 1e-5f, w); });
}

}  // namespace

DeviceSpeed Backend::measure_speed() {
  const bool host = device() == Device{};
  const double bytes = copied_bytes_a_second(*this, host);
  return {bytes, multiplied_operations_a_second(*this, host)};
}

}  // namespace foretoken
