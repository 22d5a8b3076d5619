// class CudaBackend: the operations on one GPU, each in its own file, all on one stream, asynchronous to the host.
// Included only by the files of this folder. This header must not know models or what a token means.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "kernels/backend.h"
#include "kernels/cuda/attention/plans.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.cuh"
#include "kernels/staging.h"

namespace foretoken {

class CudaMemory;
class CudaTransfers;
class CudaReplays;
class CudaProducts;
class CudaPeers;

// Activations: the residual x is f32; the results of norm_linear, attend and silu_mul are bf16 where the weights are,
// else f32.
class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options);
  ~CudaBackend() override;

  std::string name() const override { return "cuda"; }
  std::string description() const override;
  std::string lacks(const AttentionNeeds& needs) const override {
    if (needs.latent) return "latent attention";
    return needs.head_size <= 512 ? "" : "heads of more than 512 numbers (" + std::to_string(needs.head_size) + ")";
  }
  Device device() const override { return {Device::Kind::cuda, options_.device}; }

  // ---- memory (memory.cu, transfers.cu) ----
  Tensor allocate(Shape shape, DType dtype) override;
  Tensor upload(const Tensor& host) override;
  Tensor zeros(Shape shape) override;  // zeros.cu
  void copy(const Tensor& from, Tensor to) override;
  std::int64_t free_memory() const override;
  MemoryUse memory() const override;
  void restart_peak() override;
  void fetch(const Tensor& from, Tensor to) override;
  Mirror mirror(std::int64_t bytes) override;
  void push(const Mirror& mirror, std::int64_t bytes) override;
  // Fresh device memory, u8 [bytes], with a copy of `data`. The host may write to `data` again at once. Throws Error
  // while a body is recorded.
  Tensor constants(const void* data, std::int64_t bytes);

  // ---- a forward ----
  Weight prepare(Weight weight) override;  // products.cu
  DType activation_type(const Weight& w) const override;
  Tensor embed(const Weight& table, const Tensor& tokens) override;              // embed.cu
  Tensor rms_norm(const Tensor& x, const Tensor& gain, float epsilon) override;  // rms_norm.cu
  Tensor rms_norm_for(const Tensor& x, const Tensor& gain, float epsilon, const Weight& w) override;
  Tensor linear(const Tensor& x, const Weight& w) override;  // products.cu
  void linear_to(Tensor y, const Tensor& x, const Weight& w) override;
  void linear_add(Tensor x, const Tensor& h, const Weight& w) override;
  Tensor norm_linear(const Tensor& x, const Tensor& gain, float epsilon, const Weight& w) override;
  void norm_linear_to(Tensor y, const Tensor& x, const Tensor& gain, float epsilon, const Weight& w) override;
  void feed_forward(Tensor x, const Tensor& gain, float epsilon, const Weight& gate_up, const Weight& down) override;
  void head_norm(Tensor x, const Tensor& gain, float epsilon) override;  // head_norm.cu
  // rope_store.cu
  void rope(Tensor q, Tensor k, const Layout& layout, const RotaryRules& rotation, int head_size) override;
  void store(const Tensor& k, const Tensor& v, const KvLayer& kv, const Layout& layout) override;
  void rope_store(Tensor q, Tensor k, const Tensor& v, const KvLayer& kv, const Layout& layout,
                  const RotaryRules& rotation) override;
  // attend.cu
  Tensor attend(const Tensor& q, const KvLayer& kv, const Layout& layout, const AttentionRules& rules) override;
  Tensor rope_attend(Tensor q, Tensor k, const Tensor& v, const KvLayer& kv, const Layout& layout,
                     const RotaryRules& rotation, const AttentionRules& rules) override;
  Tensor attention_mass(const Tensor& q, const KvLayer& kv, const Layout& layout,
                        const AttentionRules& rules) override;  // mass.cu
  // select.cu
  void bound_pages(std::span<const KvLayer> layers, std::span<const std::int32_t> pages) override;
  Tensor select_pages(const Tensor& q, const KvLayer& kv, const Layout& layout) override;
  Tensor silu_mul(const Tensor& gate_up) override;  // silu_mul.cu
  Tensor gelu_mul(const Tensor& gate_up) override;  // gelu_mul.cu
  Tensor clamped_mul(const Tensor& gate_up, float slope, float limit) override;
  void scale(Tensor x, float by) override;                      // scale.cu
  void softcap(Tensor x, float cap) override;                   // scale.cu
  void silu_add(Tensor x, const Tensor& y) override;            // silu_add.cu
  void add(Tensor x, const Tensor& y) override;                 // add.cu
  Tensor gather(const Tensor& x, const Tensor& rows) override;  // gather.cu

  // ---- mixtures of experts (experts/grouped.cu, route.cu, shares.cu) ----
  ExpertWeights group_experts(std::vector<Weight> matrices) override;
  using Backend::route;
  Routing route(const Tensor& logits, const RoutingRules& rules) override;
  Tensor grouped_linear(const Tensor& x, const Routing& routing, const ExpertWeights& experts) override;
  void add_shares(Tensor x, const Tensor& y, const Routing& routing) override;
  void add_gated(Tensor x, const Tensor& y, const Tensor& logits) override;
  Routing held_experts(const Routing& routing, int first, int count) override;
  void expert_feed_forward(Tensor x, const Tensor& h, const Routing& routing, const ExpertWeights& gate_up,
                           const ExpertWeights& down) override;

  // ---- ranks (ranks/) ----
  void join(const Rank& rank) override;
  void all_reduce(Tensor x, const Rank& rank) override;

  // ---- distributions (distributions.cu) ----
  Distributions distributions(const Tensor& logits, std::span<const Warp> warps) override;
  void adjust(Tensor logits, std::span<const Adjustment> adjustments) override;  // adjust.cu
  void mask(Tensor logits, std::span<const std::uint32_t* const> allowed) override;
  void draw(const Distributions& distributions, std::span<const TokenDraw> draws, Tensor to) override;
  void rank(const Distributions& raw, int k, Tensor tokens, Tensor q) override;     // rank.cu
  void pick(const Tensor& known, const Tensor& at, Tensor to, int vocab) override;  // gather.cu
  void recall(const Tensor& at, Tensor to, DType from) override;
  void spread(const Tensor& from, const Tensor& ids, Tensor to) override;
  Tensor translate(const Tensor& tokens, const Tensor& ids) override;

  // ---- caches (move.cu) ----
  void move(std::span<const Moves> moves) override;

  // ---- running (cuda_backend.cu, replay.cu) ----
  void replay(std::span<const std::int64_t> key, const std::function<void()>& body, const Tensor& result) override;
  std::uint64_t recordings() const override;
  bool records() const override { return true; }
  void record_new(bool on) override;
  std::uint64_t unrecorded() const override;
  int padded(int n) const override;
  void synchronize() override;
  std::uint64_t waits() const override;
  Mark mark() override;
  double seconds(const Mark& from, const Mark& to) const override;
  void* stream() const override { return stream_; }

  // The first call of every operation that calls CUDA: see make_current().
  void enter() const { make_current(options_.device, shared_memory_); }
  cudaStream_t cuda_stream() const { return stream_; }
  bool invariant() const { return options_.invariant; }
  const CudaOptions& options() const { return options_; }
  int multiprocessors() const { return multiprocessors_; }
  int architecture() const {
    return architecture_;
  }  // 80, 90, ...: the architecture for which these kernels were built
  bool warpgroups() const {
    return warpgroups_;
  }  // the GPU has the instructions of architecture 90a, and they were built
  std::int64_t shared_memory() const { return shared_memory_; }  // bytes that one block may have
  Machine machine() const { return {multiprocessors_, cluster_, shared_memory_, multiprocessor_memory_}; }
  bool dependent_launch() const { return architecture_ >= 90; }  // see Grid::dependent_launch
  bool recording() const;                                        // a body is being captured
  // Which memory kernels may read before wait_for_previous_kernels(). A kernel is a barrier if it starts after all
  // previous work is complete and lets the next kernel start only then: embed() is one, and so is a kernel launched
  // without Grid::dependent_launch. Data written before the last barrier may be read early. A kernel that reads a
  // layout (or pages) early is launched with the result of reads_early(): false where a push or a graph launch came
  // after the last barrier, so that this kernel becomes a barrier. Pages: settled() returns whether they may be read
  // early; written(), called after reads_early(), records that a kernel writes to them. (cuda_backend.cu)
  bool reads_early();
  bool settled(const KvLayer& kv) const;
  void written(const KvLayer& kv);
  void passed_barrier();  // records that the kernel queued last is a barrier

 private:
  // The device's limits; the options may lower them.
  void limit_shared_memory(std::int64_t block, std::int64_t multiprocessor);

  CudaOptions options_;
  cudaStream_t stream_ = nullptr;
  std::string machine_;
  int multiprocessors_ = 0, architecture_ = 0;
  // Bytes of shared memory of one block, at most, and of all blocks of a multiprocessor.
  std::int64_t shared_memory_ = 0, multiprocessor_memory_ = 0;
  bool warpgroups_ = false;
  int cluster_ = 0;             // blocks of a cluster in attention, at most
  bool needs_barrier_ = false;  // a push or a graph launch came after the last barrier
  std::vector<std::pair<const void*, std::int64_t>>
      unsettled_;                       // pool and keys of layers written since the last barrier
  std::shared_ptr<CudaMemory> memory_;  // tensors keep it alive
  std::unique_ptr<CudaTransfers> transfers_;
  std::unique_ptr<CudaReplays> replays_;
  std::unique_ptr<CudaProducts> products_;
  std::map<const RankGroup*, std::unique_ptr<CudaPeers>> peers_;
  Staging moves_staging_{*this}, bounds_staging_{*this};
};

// Whether all numbers of a head are rotated, without a factor: what fused kernels do. Else rope_part rotates q (or
// none) and k in place (attention/rope_part.cu).
bool rotates_plainly(const RotaryRules& rotation, int head_size);
void rope_part(CudaBackend& backend, const Tensor& q, const Tensor& k, const Layout& layout,
               const RotaryRules& rotation, int head_size);

}  // namespace foretoken
