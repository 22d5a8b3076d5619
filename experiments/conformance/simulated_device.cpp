#include "experiments/conformance/simulated_device.h"

#include <cstring>

namespace foretoken::conformance {
namespace {

Tensor copied(const Tensor& t) {
  Tensor copy = Tensor::host(t.shape(), t.dtype());
  copy_on_host(t, copy);
  return copy;
}

}  // namespace

Tensor SimulatedDevice::allocate(Shape shape, DType dtype) {
  const Tensor memory = Tensor::host(shape, dtype);
  return {memory.owner(), memory.raw(), shape, dtype, device()};
}

Tensor SimulatedDevice::upload(const Tensor& host) {
  Tensor there = allocate(host.shape(), host.dtype());
  copy_on_host(host, there);
  return there;
}

void SimulatedDevice::copy(const Tensor& from, Tensor to) {
  if (from.device() == device() && to.device() != device()) synchronize();
  copy_on_host(from, std::move(to));
}

void SimulatedDevice::fetch(const Tensor& from, Tensor to) { on_their_way_.emplace_back(copied(from), std::move(to)); }

Mirror SimulatedDevice::mirror(std::int64_t bytes) {
  return {Tensor::host({bytes}, DType::u8), allocate({bytes}, DType::u8)};
}

void SimulatedDevice::push(const Mirror& mirror, std::int64_t bytes) {
  std::memcpy(mirror.device.raw(), mirror.host.raw(), std::size_t(bytes));
}

void SimulatedDevice::synchronize() {
  for (const auto& [from, to] : on_their_way_) copy_on_host(from, to);
  on_their_way_.clear();
  ++waits_;
}

}  // namespace foretoken::conformance
