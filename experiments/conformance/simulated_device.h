// A device without a device: the reference backend with memory of its own, as a GPU has it. What it draws the host does
// not know before it has asked for it and waited; what the host writes it does not see before it is pushed or uploaded.
// So laws can see who knows what when on a machine that has no GPU.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "kernels/reference/reference_backend.h"

namespace foretoken::conformance {

class SimulatedDevice : public ReferenceBackend {
 public:
  std::string name() const override { return "simulated"; }
  std::string description() const override { return "a simulated device with memory of its own"; }
  Device device() const override { return {Device::Kind::cpu, 1}; }

  Tensor upload(const Tensor& host) override;
  void fetch(const Tensor& from, Tensor to) override;
  Mirror mirror(std::int64_t bytes) override;
  void push(const Mirror& mirror, std::int64_t bytes) override;
  void synchronize() override;
  std::uint64_t waits() const override { return waits_; }

 private:
  std::vector<std::pair<Tensor, Tensor>> on_their_way_;  // what was there when it was asked for, and where it goes
  std::uint64_t waits_ = 0;
};

}  // namespace foretoken::conformance
