// The fast CPU backend: the best instructions of this machine, threads, packed weights. Every row's result is
// independent of its neighbours and of the number of threads, bit for bit: threads divide the outputs, never the terms
// of a sum. One caller at a time. This module must not know models.
#pragma once
#include <algorithm>
#include <functional>
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
  std::string lacks(const AttentionNeeds& needs) const override {
    return needs.head_size <= kMaxHeadSize ? ""
                                           : "heads of more than " + std::to_string(kMaxHeadSize) + " numbers (" +
                                                 std::to_string(needs.head_size) + ")";
  }
  const Operations& operations() const { return operations_; }
  ThreadPool& pool() { return pool_; }
  int threads() const { return pool_.threads(); }

  Tensor allocate(Shape shape, DType dtype) override { return arena_->allocate(shape, dtype); }
  MemoryUse memory() const override { return arena_->memory(); }
  void restart_peak() override { arena_->restart_peak(); }
  Weight prepare(Weight weight) override;
  Tensor embed(const Weight& table, const Tensor& tokens) override;
  Tensor rms_norm(const Tensor& x, const Tensor& gain, float epsilon) override;
  Tensor linear(const Tensor& x, const Weight& w) override;
  void rope(Tensor q, Tensor k, const Layout& layout, const RotaryRules& rotation, int head_size) override;
  Tensor attend(const Tensor& q, const KvLayer& kv, const Layout& layout, const AttentionRules& rules) override;
  Tensor attention_mass(const Tensor& q, const KvLayer& kv, const Layout& layout,
                        const AttentionRules& rules) override;  // cpu_mass.cpp
  Tensor silu_mul(const Tensor& gate_up) override;
  Tensor gelu_mul(const Tensor& gate_up) override;
  Tensor clamped_mul(const Tensor& gate_up, float slope, float limit) override;
  void softcap(Tensor x, float cap) override;
  void silu_add(Tensor x, const Tensor& y) override;
  void add(Tensor x, const Tensor& y) override;
  void store(const Tensor& k, const Tensor& v, const KvLayer& kv, const Layout& layout) override;
  void linear_to(Tensor y, const Tensor& x, const Weight& w) override;
  void linear_add(Tensor x, const Tensor& h, const Weight& w) override;
  Tensor norm_linear(const Tensor& x, const Tensor& gain, float epsilon, const Weight& w) override;
  void feed_forward(Tensor x, const Tensor& gain, float epsilon, const Weight& gate_up, const Weight& down) override;
  // cpu_experts.cpp
  Tensor grouped_linear(const Tensor& x, const Routing& routing, const ExpertWeights& experts) override;
  void expert_feed_forward(Tensor x, const Tensor& h, const Routing& routing, const ExpertWeights& gate_up,
                           const ExpertWeights& down) override;
  Distributions distributions(const Tensor& logits, std::span<const Warp> warps) override;
  double distribution_tile(const Distribution& distribution, Token begin, int n, double* p) const override;
  void for_each(int n, const std::function<void(int)>& f) override { pool_.run(n, f); }
  DeviceSpeed measure_speed() override;  // ceilings.cpp

 private:
  // [rows, inputs] for inputs of a product.
  Tensor allocate_rows(std::int64_t rows, std::int64_t inputs, DType dtype);
  // The rows of x in the layout that the product with w reads, and those of rms_norm(x).
  Tensor arranged(const Tensor& x, const PackedWeight& w);
  Tensor normed(const Tensor& x, const Tensor& gain, float epsilon, const PackedWeight& w);
  // y = or += w times rows in that layout.
  void multiply(const Tensor& rows, const PackedWeight& w, Tensor y, bool accumulate);
  // Whether gated() computes the first of these products, for the second.
  static bool can_gate(const Weight& gate_up, const Weight& down, const PackedWeight& packed_down);
  // f(e, xe) for each expert e with pairs: xe, the inputs of its pairs, one below the other, gives f32 [pairs of e,
  // width], which becomes the rows of these pairs in the result [pairs, width].
  Tensor by_expert(const Tensor& x, const Routing& routing, std::int64_t width,
                   const std::function<Tensor(std::size_t e, const Tensor& xe)>& f);
  // A row operation of gates and of what they multiply, for each row of gate_up.
  Tensor products_of_halves(const Tensor& gate_up, void (*row)(const float*, const float*, float*, std::int64_t));
  // silu_mul of the product of `rows` with gate_up, in the layout for `down`.
  Tensor gated(const Tensor& rows, const PackedWeight& gate_up, const PackedWeight& down);
  std::shared_ptr<const PackedWeight> packed(const Weight& w);  // as prepared, else packed for this one use
  // y = or += w times the rounded rows of x (cpu_rounded.cpp).
  void multiply_rounded(const Tensor& x, const PackedWeight& w, Tensor y, bool accumulate);
  // panels(begin, end) for all panels of w, on all threads where `rows` rows are worth a fork.
  void for_panels(const PackedWeight& w, std::int64_t rows, const std::function<void(std::int64_t, std::int64_t)>& f);
  // f(row) for all rows, in parallel where `row_work` floats a row are worth a fork.
  template <class F> void for_rows(std::int64_t rows, std::int64_t row_work, const F& f) {
    if (rows * row_work < kForkWork) {
      for (std::int64_t r = 0; r < rows; ++r) f(r);
    } else {
      const std::int64_t chunk = std::max<std::int64_t>(1, kForkWork / 4 / std::max<std::int64_t>(row_work, 1));
      pool_.run(int((rows + chunk - 1) / chunk), [&](int c) {
        for (std::int64_t r = c * chunk; r < std::min(rows, (c + 1) * chunk); ++r) f(r);
      });
    }
  }

  static constexpr std::int64_t kForkWork = 16384;  // row work, in floats, that takes longer than a fork

  const Operations& operations_;
  ThreadPool pool_;
  std::shared_ptr<Arena> arena_ = std::make_shared<Arena>();
  WeightMemory weight_memory_;
  Rotations rotations_;
};

// The tables of operations that this machine can run, best first.
std::vector<const Operations*> cpu_operations();

}  // namespace foretoken
