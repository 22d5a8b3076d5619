#include "experiments/conformance/devices.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <semaphore>
#include <thread>

namespace foretoken::conformance {
namespace {

thread_local int lane = -1;  // that this thread runs; -1: none

}  // namespace

struct Turns::Ring {
  explicit Ring(int n) : size(n), at_end(std::size_t(n)) {
    for (int i = 0; i < n; ++i) turns.push_back(std::make_unique<std::counting_semaphore<>>(0));
  }
  // Gives the turn to the next lane that has not ended; false where there is none but this one.
  bool give() {
    for (int i = 1; i < size; ++i) {
      const int next = (lane + i) % size;
      if (at_end[std::size_t(next)]) continue;
      turns[std::size_t(next)]->release();
      return true;
    }
    return false;
  }
  void await() {
    if (!turns[std::size_t(lane)]->try_acquire_for(std::chrono::seconds(1))) blocked = true;
  }
  void pass() {
    if (!blocked && give()) await();
  }
  void run(int i, const std::function<void(int)>& f) {
    lane = i;
    await();
    try {
      f(i);
    } catch (...) {
      if (!thrown.test_and_set()) failure = std::current_exception();
    }
    at_end[std::size_t(i)] = true;
    if (!blocked) give();
  }

  int size;
  std::vector<std::unique_ptr<std::counting_semaphore<>>> turns;
  std::vector<std::atomic<bool>> at_end;
  std::atomic<bool> blocked = false;  // a lane waited in vain: no turns from then on
  std::atomic_flag thrown;
  std::exception_ptr failure;
};

Turns::Turns() = default;
Turns::~Turns() = default;

void Turns::for_each(int n, const std::function<void(int)>& f) {
  if (n == 0 || lane >= 0) return ReferenceBackend::for_each(n, f);
  ring_ = std::make_unique<Ring>(n);
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) threads.emplace_back([&, i] { ring_->run(i, f); });
  ring_->turns[0]->release();
  for (std::thread& t : threads) t.join();
  if (ring_->failure) std::rethrow_exception(ring_->failure);
}

Chance* Turns::chance() {
  if (lane >= 0) ring_->pass();
  return ReferenceBackend::chance();
}

double Turns::distribution_tile(const Distribution& distribution, Token begin, int n, double* p) const {
  if (lane >= 0) ring_->pass();
  return ReferenceBackend::distribution_tile(distribution, begin, n, p);
}

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
