// The operations, in the order in which a forward uses them: all that a device must be able to do. Logic above is written
// once; operations are written per device on purpose: reference (truth), cpu and cuda (speed).
// This room must not know models, tokens' meaning, sequences or caches.
//
// Unless a comment says otherwise: activations are f32 [rows, width] (a device may keep its own activation type inside a
// forward), inputs may be views with strided rows, outputs are fresh and dense, and every row's result is the same
// bits whatever other rows are in the batch (numerics: invariant).
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/law.h"
#include "kernels/layout.h"
#include "kernels/philox.h"
#include "kernels/weight.h"

namespace foretoken {

class Chance;

// One token to be drawn from one row of laws.
struct TokenDraw {
  Draws draws;
  DrawName name;
  std::uint32_t position = 0;  // absolute, of the token to be drawn
  bool race = false;           // noise by absolute position (coupled) instead of the named uniform
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;          // "reference", "cpu", "cuda"
  virtual std::string description() const = 0;   // the machine and the chosen instructions, for results
  virtual Device device() const { return {}; }

  // ---- memory ----
  virtual Tensor allocate(Shape shape, DType dtype) = 0;  // uninitialised; freed memory is reused
  virtual Tensor upload(const Tensor& host) = 0;          // a dense host tensor to this device; may return it as it is
  virtual void copy(const Tensor& from, Tensor to) = 0;   // same shape and dtype, this device or host on either side
  // Bytes that this device could still hand out; 0: it cannot tell.
  virtual std::int64_t free_memory() const { return 0; }
  // Rearranges a weight for this device's `linear`, once, at load time. The result may drop `values`.
  virtual Weight prepare(Weight weight) = 0;

  // ---- a forward ----
  virtual Tensor embed(const Tensor& table, const Tensor& tokens) = 0;  // table [vocab, width] f32|bf16, tokens i32 [rows] (-1: zeros) -> [rows, width]
  virtual Tensor rms_norm(const Tensor& x, const Tensor& gain, float epsilon) = 0;  // gain f32 [width]; x / sqrt(mean x^2 + eps) * gain
  virtual Tensor linear(const Tensor& x, const Weight& w) = 0;                      // [rows, in] -> [rows, out]
  // In place, on views q [rows, heads * head_size] and k [rows, kv_heads * head_size]: pairs (i, i + head_size / 2) of every
  // head turn by positions[row] * frequencies[i] (f32 [head_size / 2]).
  virtual void rope(Tensor q, Tensor k, const Layout& layout, const Tensor& frequencies, int head_size) = 0;
  virtual void store(const Tensor& k, const Tensor& v, const KvLayer& kv, const Layout& layout) = 0;  // rows -> their slots
  // softmax(q k^T * scale) v over the slots that each row sees; query head h reads kv head h / (heads / kv_heads).
  virtual Tensor attend(const Tensor& q, const KvLayer& kv, const Layout& layout, float scale) = 0;   // [rows, heads * head_size]
  virtual Tensor silu_mul(const Tensor& gate_up) = 0;            // [rows, 2 width]: silu(first half) * second half -> [rows, width]
  virtual void add(Tensor x, const Tensor& y) = 0;               // x += y
  virtual Tensor gather(const Tensor& x, const Tensor& rows) = 0;  // rows i32 [n] -> [n, width]
  // x += linear(h, w). Fused where a device can.
  virtual void linear_add(Tensor x, const Tensor& h, const Weight& w) { add(x, linear(h, w)); }

  // ---- laws ----
  virtual Laws law(const Tensor& logits, std::span<const Warp> warps) = 0;  // logits [n, vocab] f32, one warp a row
  // tokens i32, to[i] = a token drawn from laws row i as `draws[i]` names it; to may be strided (stride of dimension 0).
  virtual void draw(const Laws& laws, std::span<const TokenDraw> draws, Tensor to) = 0;
  // Host only: p[i] = law(begin + i) for i < n <= kTile; returns their tile_sum. What a HostLane asks for.
  virtual double law_tile(const Law& law, Token begin, int n, double* p) const {
    for (int i = 0; i < n; ++i) p[i] = law(begin + i);
    return tile_sum([&](int i) { return p[i]; }, 0, n);
  }

  // ---- caches ----
  // KV compaction: copies all layers of slot from[i] to slot to[i] of one block table, in order (to[i] <= from[i], both ascending).
  virtual void move(std::span<const KvLayer> layers, const Tensor& table, std::span<const std::int32_t> from, std::span<const std::int32_t> to) = 0;

  // ---- running ----
  // Runs `body`; a device may record it the first time and replay it for the same key. A body has no host effects.
  virtual void replay(const std::string& key, const std::function<void()>& body) { (void)key; body(); }
  virtual void synchronize() {}
  // Runs f(0) ... f(n - 1), possibly at once.
  virtual void for_each(int n, const std::function<void(int)>& f) {
    for (int i = 0; i < n; ++i) f(i);
  }
  // Who decides draws instead of Philox: null but in proofs.
  virtual Chance* chance() { return nullptr; }
};

// "reference": plain loops and Eigen, f32 activations, no threads: the oracle.
std::unique_ptr<Backend> make_reference_backend();
// "cpu": SIMD chosen at run time, threads (0: as many as the machine has). `instructions` limits the choice, for tests:
// "" (best), "avx512bf16", "avx512", "avx2", "scalar"; one that the machine lacks is an Error.
std::unique_ptr<Backend> make_cpu_backend(int threads = 0, const std::string& instructions = "");
// The instruction sets of make_cpu_backend that this machine has, best first.
std::vector<std::string> cpu_instructions();

}  // namespace foretoken
