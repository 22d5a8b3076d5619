// The fast CPU backend: the best instructions of this machine, threads, packed weights. Every row's result is independent of
// its neighbours and of the number of threads, bit for bit: threads share out outputs, never the terms of a sum.
// One caller at a time. This room must not know models.
#pragma once
#include <memory>
#include <string>

#include "kernels/cpu/arena.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/packing.h"
#include "kernels/cpu/rotation.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/host_backend.h"

namespace foretoken {

class CpuBackend final : public HostBackend {
 public:
  CpuBackend(int threads, const Operations& operations) : operations_(operations), pool_(threads) {}

  std::string name() const override { return "cpu"; }
  std::string description() const override;
  const Operations& operations() const { return operations_; }
  ThreadPool& pool() { return pool_; }

  Tensor allocate(Shape shape, DType dtype) override { return arena_->allocate(shape, dtype); }
  Weight prepare(Weight weight) override;
  Tensor embed(const Tensor& table, const Tensor& tokens) override;
  Tensor rms_norm(const Tensor& x, const Tensor& gain, float epsilon) override;
  Tensor linear(const Tensor& x, const Weight& w) override;
  void rope(Tensor q, Tensor k, const Layout& layout, const Tensor& frequencies, int head_size) override;
  Tensor attend(const Tensor& q, const KvLayer& kv, const Layout& layout, float scale) override;
  Tensor silu_mul(const Tensor& gate_up) override;
  void add(Tensor x, const Tensor& y) override;
  void linear_add(Tensor x, const Tensor& h, const Weight& w) override;
  Laws law(const Tensor& logits, std::span<const Warp> warps) override;
  double law_tile(const Law& law, Token begin, int n, double* p) const override;
  void for_each(int n, const std::function<void(int)>& f) override { pool_.run(n, f); }

 private:
  void multiply(const Tensor& x, const Weight& w, Tensor y, bool accumulate);
  // f(row) for all rows: at once where `row_work` floats a row make that worth a fork.
  template <class F> void for_rows(std::int64_t rows, std::int64_t row_work, const F& f);

  const Operations& operations_;
  ThreadPool pool_;
  std::shared_ptr<Arena> arena_ = std::make_shared<Arena>();
  WeightMemory weight_memory_;
  Rotations rotations_;
};

// The tables of operations that this machine can run, best first.
std::vector<const Operations*> cpu_operations();

}  // namespace foretoken
