// Reference backends on which the lanes of a batch run in another order than one after another: what a rule keeps
// outside its arguments, in static or member variables, then changes verdicts, as it does on a machine with threads,
// but always and everywhere alike.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/reference/reference_backend.h"

namespace foretoken::conformance {

// The last lane first.
class Backwards : public ReferenceBackend {
 public:
  std::string description() const override { return "the last tree judged first"; }
  void for_each(int n, const std::function<void(int)>& f) override {
    for (int i = n; i-- > 0;) f(i);
  }
};

// A thread for each lane. They take turns: one goes on at every draw of another, and wherever another reads
// probabilities. A lane that waits for one whose turn it is not, as a lock makes it, gets it after a second.
class Turns : public ReferenceBackend {
 public:
  Turns();
  ~Turns() override;
  std::string description() const override { return "trees judged at once, by threads that take turns"; }
  void for_each(int n, const std::function<void(int)>& f) override;
  Chance* chance() override;
  double distribution_tile(const Distribution& distribution, Token begin, int n, double* p) const override;

 private:
  struct Ring;
  std::unique_ptr<Ring> ring_;  // of the for_each that runs
};

// A simulated device: the reference backend with separate memory, as a GPU has. The host reads what the device drew
// only after a fetch and a synchronize, or a copy, for which it waits; the device reads what the host wrote only after
// a push or an upload. So laws detect a missing transfer on a machine without a GPU.

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
