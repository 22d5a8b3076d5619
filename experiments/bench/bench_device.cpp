#include "experiments/bench/bench_device.h"

#include <algorithm>

#include "kernels/cpu/ceilings.h"

namespace foretoken {

namespace {

DeviceSpeed measure_cpu(CpuBackend& cpu) {
  constexpr std::int64_t kBytes = 256 << 20;  // beyond every cache
  constexpr int kRepeats = 9;
  ReadProbe probe(cpu, kBytes);
  std::vector<double> bytes, operations;
  for (int i = 0; i < kRepeats; ++i) {
    bytes.push_back(probe.bytes_a_second());
    operations.push_back(operations_a_second(cpu));
  }
  return {median(bytes), median(operations)};
}

}  // namespace

DeviceSpeed measure_device(Backend& b) {
  if (auto* cpu = dynamic_cast<CpuBackend*>(&b)) return measure_cpu(*cpu);
  const bool host = b.device() == Device{};
  const int pieces = host ? 64 : 1;  // of a copy, for all threads of a host
  const std::int64_t bytes = host ? 256 << 20 : std::int64_t(4) << 30, side = host ? 1024 : 8192;
  DeviceSpeed speed;
  {
    const Tensor from = b.allocate({bytes}, DType::u8), to = b.allocate({bytes}, DType::u8);
    b.copy(from, to);  // so that a host has mapped the memory
    const std::int64_t piece = bytes / pieces;
    speed.bytes_a_second =
        2 * double(bytes) / time_of(b, 9, [&] {
          b.for_each(pieces, [&](int i) { b.copy(from.rows(i * piece, piece), to.rows(i * piece, piece)); });
        });
  }
  const Tensor numbers = Tensor::host({side, side}, DType::f32), gain = Tensor::host({side}, DType::f32);
  for (std::int64_t i = 0; i < side * side; ++i)
    numbers.data<float>()[i] = float(i * 2654435761u >> 8 & 0xffff) / 65536 - 0.5f;
  std::fill_n(gain.data<float>(), side, 1.0f);
  const Tensor half = Tensor::host({side, side}, DType::bf16);
  for (std::int64_t i = 0; i < side * side; ++i) half.data<bf16>()[i] = bf16(numbers.data<float>()[i]);
  const Weight w = b.prepare(Weight::dense(b.upload(half)));
  const Tensor x = b.upload(numbers), g = b.upload(gain);
  speed.operations_a_second =
      2 * double(side) * double(side) * double(side) / time_of(b, 9, [&] { b.norm_linear(x, g, 1e-5f, w); });
  return speed;
}

}  // namespace foretoken
