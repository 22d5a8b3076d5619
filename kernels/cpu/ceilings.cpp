#include "kernels/cpu/ceilings.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

namespace foretoken {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr std::int64_t kPiece = 64 << 10;

}  // namespace

ReadProbe::ReadProbe(CpuBackend& cpu, std::int64_t bytes) : cpu_(cpu) {
  WeightMemory memory;
  const std::shared_ptr<void> data = memory.allocate(std::size_t(bytes));
  std::memset(data.get(), 1, std::size_t(bytes));
  cut(data.get(), bytes);
  owners_.push_back(data);
}

ReadProbe::ReadProbe(CpuBackend& cpu, std::span<const Weight> weights) : cpu_(cpu) {
  for (const Weight& w : weights) {
    const auto* packed = static_cast<const PackedWeight*>(w.prepared.get());
    std::int64_t scales = 0;
    for (const auto& part : {packed->scales, packed->zeros, packed->minima})
      if (part) cut(part.get(), packed->scale_bytes()), scales += packed->scale_bytes();
    cut(packed->data.get(), packed->bytes() - scales);
    owners_.push_back(w.prepared);
  }
}

void ReadProbe::cut(const void* data, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += kPiece)
    pieces_.push_back({static_cast<const std::byte*>(data) + at, std::min(kPiece, bytes - at)});
  bytes_ += bytes;
}

void ReadProbe::read() {
  cpu_.pool().run(int(pieces_.size()),
                  [&](int i) { cpu_.operations().read(pieces_[std::size_t(i)].data, pieces_[std::size_t(i)].bytes); });
}

double ReadProbe::bytes_a_second() {
  const int passes = int(std::max<std::int64_t>(1, (16 << 20) / bytes_));
  for (int i = 0; i < kWarmUp; ++i) read();
  const auto start = Clock::now();
  for (int i = 0; i < passes; ++i) read();
  return double(bytes_) * passes / since(start);
}

double fork_seconds(CpuBackend& cpu) {
  constexpr int kForks = 1000;
  const auto start = Clock::now();
  for (int i = 0; i < kForks; ++i) cpu.pool().run(cpu.pool().threads(), [](int) {});
  return since(start) / kForks;
}

double operations_a_second(CpuBackend& cpu) {
  constexpr std::int64_t kSteps = 2000;
  const int pieces = 16 * cpu.pool().threads();
  const auto start = Clock::now();
  cpu.pool().run(pieces, [&](int) { cpu.operations().multiply_add(kSteps); });
  return cpu.operations().operations_per_step * kSteps * pieces / since(start);
}

DeviceSpeed CpuBackend::measure_speed() {
  constexpr std::int64_t kBytes = 256 << 20;  // beyond every cache
  constexpr std::size_t kRepeats = 9;
  ReadProbe probe(*this, kBytes);
  std::vector<double> bytes, operations;
  while (bytes.size() < kRepeats) {
    bytes.push_back(probe.bytes_a_second());
    operations.push_back(operations_a_second(*this));
  }
  std::ranges::sort(bytes), std::ranges::sort(operations);
  return {bytes[kRepeats / 2], operations[kRepeats / 2], true};
}

}  // namespace foretoken
