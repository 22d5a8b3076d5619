// A simulated device: the reference backend with separate memory, as a GPU has. The host reads what the device drew
// only after a fetch and a synchronize, or a copy, for which it waits; the device reads what the host wrote only after
// a push or an upload. So laws detect a missing transfer on a machine without a GPU.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "kernels/reference/reference_backend.h"

namespace foretoken::conformance {

class SimulatedDevice : public ReferenceBackend {
 public:
  std::string name() const override { return "simulated"; }
  std::string description() const override { return "a simulated device with separate memory"; }
  Device device() const override { return {Device::Kind::cpu, 1}; }

  Tensor allocate(Shape shape, DType dtype) override;
  Tensor upload(const Tensor& host) override;
  void copy(const Tensor& from, Tensor to) override;
  void fetch(const Tensor& from, Tensor to) override;
  Mirror mirror(std::int64_t bytes) override;
  void push(const Mirror& mirror, std::int64_t bytes) override;
  void synchronize() override;
  std::uint64_t waits() const override { return waits_; }

 private:
  std::vector<std::pair<Tensor, Tensor>> on_their_way_;  // a copy made at the time of the fetch, and its destination
  std::uint64_t waits_ = 0;
};

}  // namespace foretoken::conformance
