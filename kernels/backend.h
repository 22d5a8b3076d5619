// The operations that a device must implement, in the order in which a forward uses them. Each operation is implemented
// once per device: reference (for correctness), cpu and cuda (for speed). Code above this interface is written once.
// This module must not know models, tokens' meaning, sequences or caches.
//
// Unless a comment says otherwise: activations are f32 [rows, width] (a device may keep its own activation type inside
// a forward), inputs may be views with strided rows, outputs are fresh and dense, and every row's result is the same
// bits whatever other rows are in the batch (numerics: invariant).
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/adjustment.h"
#include "kernels/attention_rules.h"
#include "kernels/device_speed.h"
#include "kernels/distribution.h"
#include "kernels/experts.h"
#include "kernels/layout.h"
#include "kernels/memory_use.h"
#include "kernels/philox.h"
#include "kernels/rank.h"
#include "kernels/serial.h"
#include "kernels/weight.h"

namespace foretoken {

class Chance;

// Host memory and its image on a device: what a forward reads besides weights and caches. The same memory where the
// device reads the host's.
struct Mirror {
  Tensor host, device;  // u8 [bytes]
};

// A point in time in the order of a backend's work; see Backend::mark.
struct Mark {
  double host = 0;  // seconds
  int event = -1;   // index of the recorded event, on a device that runs asynchronously; -1: the host's time counts
};
double host_clock();  // seconds

// One request to draw from a row of distributions: a token, or several without replacement, in order.
struct TokenDraw {
  Draws draws = {};
  DrawName name = {};
  std::uint32_t position = 0;  // absolute, of the token to be drawn
  bool race = false;           // noise by absolute position (coupled) instead of the named uniform
  // How many tokens. The j-th is drawn from the distribution without the tokens before it, under the name {role, node +
  // j, index + j}; in a race it is the token with the j-th least time. It is written to to[j]; -1 where no mass was
  // left.
  std::uint8_t siblings = 1;
  std::int32_t row = -1;  // of the distributions; -1: row i for draw i
  Token* to = nullptr;    // destination in the backend's memory, [siblings]; null: to[i] of Backend::draw
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;         // "reference", "cpu", "cuda"
  virtual std::string description() const = 0;  // the machine and the chosen instructions, for results
  virtual Device device() const { return {}; }
  // What attention on this device does not compute of that, as it ends the words "the model has"; empty: it computes
  // all.
  virtual std::string lacks(const AttentionNeeds& needs) const { return (void)needs, ""; }
  std::uint64_t serial() const { return serial_.number(); }

  // ---- memory ----
  virtual Tensor allocate(Shape shape, DType dtype) = 0;  // uninitialised; freed memory is reused
  virtual Tensor upload(const Tensor& host) = 0;          // a dense host tensor to this device; may return it as it is
  virtual void copy(const Tensor& from, Tensor to) = 0;   // same shape and dtype, this device or host on either side
  // f32, all 0.
  virtual Tensor zeros(Shape shape);
  // Bytes that this device can still allocate; 0: unknown.
  virtual std::int64_t free_memory() const { return 0; }
  // Of allocate(). All 0: not counted.
  virtual MemoryUse memory() const { return {}; }
  virtual void restart_peak() {}
  // Copies to the host; the copy may be incomplete until the next synchronize(). `to` must not be freed or moved until
  // then.
  virtual void fetch(const Tensor& from, Tensor to) { copy(from, to); }
  // Host memory with an image on the device, at an address that never changes. push() makes the first `bytes` bytes
  // that the host wrote visible to all later work of the device; the host may write again at once.
  virtual Mirror mirror(std::int64_t bytes);
  virtual void push(const Mirror& mirror, std::int64_t bytes) { (void)mirror, (void)bytes; }
  // Rearranges a weight for this device's `linear`, once, at load time. The result may have no `values`. A weight of
  // any format is multiplied as dequantized(weight) is, bit for bit; a device may do so by multiplying that. Where
  // inputs are rounded (Weight::activations), products are those of kernels/formats/activations/activation_format.h.
  virtual Weight prepare(Weight weight) = 0;
  // Prepared weights of one shape, one of each expert, for grouped_linear. Where a device cannot multiply them as a
  // group: an Error that says why.
  virtual ExpertWeights group_experts(std::vector<Weight> matrices);
  // The type of norm_linear's results with a prepared weight: a device may keep its own.
  virtual DType activation_type(const Weight& w) const { return (void)w, DType::f32; }

  // ---- a forward ----
  // Rows of a table [vocab, width], prepared or dense values in the backend's memory: tokens i32 [rows] (-1: a row of
  // zeros) -> f32 [rows, width]. So a head that is tied to the embedding is in memory once, in whatever format.
  virtual Tensor embed(const Weight& table, const Tensor& tokens) = 0;
  // x / sqrt(mean x^2 + epsilon) * gain for each row of x [rows, width]; gain f32 [width] (Zhang and Sennrich 2019,
  // arXiv 1910.07467).
  virtual Tensor rms_norm(const Tensor& x, const Tensor& gain, float epsilon) = 0;
  // The same in the type in which products with `w` read it: a device may keep its own.
  virtual Tensor rms_norm_for(const Tensor& x, const Tensor& gain, float epsilon, const Weight& w) {
    return (void)w, rms_norm(x, gain, epsilon);
  }
  // x W^T + b: x [rows, in] -> f32 [rows, out]. Throws Error where x has another width than w.in.
  virtual Tensor linear(const Tensor& x, const Weight& w) = 0;
  // The same into y, f32 [rows, out], memory of the caller, which is the same in every replay.
  virtual void linear_to(Tensor y, const Tensor& x, const Weight& w) { copy(linear(x, w), y); }
  // linear(rms_norm(x)), in the activation type of the device.
  virtual Tensor norm_linear(const Tensor& x, const Tensor& gain, float epsilon, const Weight& w) {
    return linear(rms_norm(x, gain, epsilon), w);
  }
  // linear_to(y, rms_norm(x)), likewise.
  virtual void norm_linear_to(Tensor y, const Tensor& x, const Tensor& gain, float epsilon, const Weight& w) {
    linear_to(y, rms_norm(x, gain, epsilon), w);
  }
  // In place, on a view x [rows, heads * head_size]: rms_norm of every head separately, gain f32 [head_size].
  virtual void head_norm(Tensor x, const Tensor& gain, float epsilon) = 0;
  // In place, on views q [rows, heads * head_size] and k [rows, kv_heads * head_size]: pairs (i, i + n) of every head
  // (or RotaryRules::neighbours) are rotated by the angle positions[row] * frequencies[i], and multiplied by the
  // rotation's factor; n frequencies.
  virtual void rope(Tensor q, Tensor k, const Layout& layout, const RotaryRules& rotation, int head_size) = 0;
  // Writes row r of k and v [rows, kv_heads * head_size] to slot layout.slots[r] of its block table, in kv.dtype. v is
  // absent where values are parts of keys (KvLayer::latent).
  virtual void store(const Tensor& k, const Tensor& v, const KvLayer& kv, const Layout& layout) = 0;
  // rope, then store. An absent q: keys and values alone.
  virtual void rope_store(Tensor q, Tensor k, const Tensor& v, const KvLayer& kv, const Layout& layout,
                          const RotaryRules& rotation) {
    rope(q, k, layout, rotation, kv.head_size);
    store(k, v, kv, layout);
  }
  // softmax(f(q k^T * scale)) v over the slots that each row attends to, f and the scale as of the rules: q [rows,
  // heads
  // * head_size] -> f32 [rows, heads * KvLayer::value_size()]. Query head h reads kv head h / (heads / kv_heads).
  // Layout::head_tables counts here alone.
  virtual Tensor attend(const Tensor& q, const KvLayer& kv, const Layout& layout, const AttentionRules& rules) = 0;
  // rope_store, then attend. Fused where a device can: q and k may then remain unrotated.
  virtual Tensor rope_attend(Tensor q, Tensor k, const Tensor& v, const KvLayer& kv, const Layout& layout,
                             const RotaryRules& rotation, const AttentionRules& rules) {
    rope_store(q, k, v, kv, layout, rotation);
    return attend(q, kv, layout, rules);
  }
  // How much of the softmax of `attend` the rows of each block table put on the slots of each page, over all their
  // heads: q as of `attend` -> f32 [sequences, table_width], 0 for pages that none of them attends to. For the choice
  // of pages (SnapKV, arXiv 2404.14469; H2O, 2306.14048).
  virtual Tensor attention_mass(const Tensor& q, const KvLayer& kv, const Layout& layout,
                                const AttentionRules& rules) = 0;
  // The bounds of these pages, all different, whose rows are all written, in each of these layers, of one pool, all of
  // the same form and with room for them: [2, kv_heads, head_size] of bounds_type(), for each kv head and number of a
  // key the least and the greatest of the page's keys; of codes times their scale, rounded to the nearest. A NaN among
  // others is passed over.
  virtual void bound_pages(std::span<const KvLayer> layers, std::span<const std::int32_t> pages) = 0;
  // The block tables of Layout::selection for one layer, i32 [sequences * kv_heads, table_width], to be attended to
  // with Layout::head_tables. Each kv head has the chosen[i] candidates of the highest score, the first ones of equal
  // score, in the order of the candidates, then the pages of layout.tables behind the first chosen[i]. A page's score
  // bounds that of each of its keys from above, but for rounding (Tang et al. 2024, Quest, arXiv 2406.10774): the
  // greatest, over the table's rows (PageSelection::choosing) and the head's query heads, of sum_i max(q_i least_i, q_i
  // greatest_i), whose order no rule of attention changes. q: rotated, as of `attend`. A device may sum in any order,
  // the same for a table whatever other tables are in the batch.
  virtual Tensor select_pages(const Tensor& q, const KvLayer& kv, const Layout& layout) = 0;
  // silu(first half) * second half: gate_up [rows, 2 width] -> [rows, width].
  virtual Tensor silu_mul(const Tensor& gate_up) = 0;
  // gelu(first half) * second half, likewise: gelu(v) = v / 2 * (1 + tanh(sqrt(2 / pi) * (v + 0.044715 v^3)))
  // (Hendrycks and Gimpel 2016, arXiv 1606.08415).
  virtual Tensor gelu_mul(const Tensor& gate_up) = 0;
  // Likewise g / (1 + exp(-slope g)) * (u + 1), with g the first half, at most `limit`, and u the second, within
  // +-limit (gpt-oss: arXiv 2508.10925).
  virtual Tensor clamped_mul(const Tensor& gate_up, float slope, float limit) = 0;
  // In place: x = silu(x) + y, the silu of silu_mul. x f32 [rows, n width], y f32 [rows, width], which stands n times
  // side by side.
  virtual void silu_add(Tensor x, const Tensor& y) = 0;
  virtual void add(Tensor x, const Tensor& y) = 0;  // x += y
  virtual void scale(Tensor x, float by) = 0;       // in place: x f32 [rows, width] * by
  virtual void softcap(Tensor x, float cap) = 0;    // in place: cap * tanh(x / cap), x f32 [rows, width], cap > 0
  virtual Tensor gather(const Tensor& x, const Tensor& rows) = 0;  // rows i32 [n] -> [n, width]
  // x += linear(h, w), f32 [rows, out]. Fused where a device can.
  virtual void linear_add(Tensor x, const Tensor& h, const Weight& w) { add(x, linear(h, w)); }
  // x += linear(silu_mul(norm_linear(x)), down): the second half of a layer.
  virtual void feed_forward(Tensor x, const Tensor& gain, float epsilon, const Weight& gate_up, const Weight& down) {
    linear_add(x, silu_mul(norm_linear(x, gain, epsilon, gate_up)), down);
  }

  // ---- mixtures of experts ----
  // Chooses the experts of each row of logits f32 [rows, experts] by the rules. Throws Error where there are not so
  // many experts, or the groups do not divide them, or those that are used have fewer than a row uses.
  virtual Routing route(const Tensor& logits, const RoutingRules& rules) = 0;
  Routing route(const Tensor& logits, int used, bool renormalized) {
    return route(logits, RoutingRules(used, renormalized));
  }
  // linear of each pair with the matrix of its expert: x [rows, in], of which a row serves all its pairs, or [pairs,
  // in]
  // -> f32 [pairs, out]. A matrix is read once for all pairs of its expert (of many pairs: once for some of them), and
  // only those of experts that have pairs.
  virtual Tensor grouped_linear(const Tensor& x, const Routing& routing, const ExpertWeights& experts) = 0;
  // x += for each row the sum of shares[j] * y[row * used + j], j ascending from 0: x f32 [rows, width], y f32 [pairs,
  // width].
  virtual void add_shares(Tensor x, const Tensor& y, const Routing& routing) = 0;
  // x += sigmoid(logits) * y: x, y f32 [rows, width], logits f32 [rows, 1].
  virtual void add_gated(Tensor x, const Tensor& y, const Tensor& logits) = 0;
  // add_shares(x, grouped_linear(silu_mul(grouped_linear(h, gate_up)), down)): h [rows, width]. Fused where a device
  // can, in its activation type.
  virtual void expert_feed_forward(Tensor x, const Tensor& h, const Routing& routing, const ExpertWeights& gate_up,
                                   const ExpertWeights& down) {
    add_shares(x, grouped_linear(silu_mul(grouped_linear(h, routing, gate_up)), routing, down), routing);
  }

  // Of a routing to all experts what concerns `count` of them, from `first` on, numbered from 0: pairs of the others
  // are `chosen` -1, are no pair of any expert, and add nothing in add_shares.
  virtual Routing held_experts(const Routing& routing, int first, int count);

  // ---- ranks ----
  // Once before work in which all_reduce is called; all ranks call it, with nothing queued that others wait for.
  virtual void join(const Rank& rank) { (void)rank; }
  // In place: x f32 [rows, width], dense, becomes the sum of the ranks' x, added in their order: the same bits on all
  // of them. Every rank must call it, with as many numbers; what ends the ranks' meetings is an Error.
  virtual void all_reduce(Tensor x, const Rank& rank);

  // ---- distributions ----
  // The distributions of logits f32 [n, vocab], one warp for each row: the bits of normalize().
  virtual Distributions distributions(const Tensor& logits, std::span<const Warp> warps) = 0;
  // In place: row i of logits [n, vocab] f32 is adjusted by adjustments[i].
  virtual void adjust(Tensor logits, std::span<const Adjustment> adjustments) = 0;
  // In place: the logits of row i of [n, vocab] f32 become minus infinity for each token t whose bit t % 32 of
  // allowed[i][t / 32] (the backend's memory) is clear. The row stays as it is where the pointer is null, or no allowed
  // token's logit is above minus infinity, as of a draft that lacks all of these tokens.
  virtual void mask(Tensor logits, std::span<const std::uint32_t* const> allowed) = 0;
  // tokens i32, to[i] = a token drawn from distributions row i (or TokenDraw::row) by draws[i]; to may be strided
  // (stride of dimension 0), and absent where every draw has its own destination TokenDraw::to, which draws of several
  // siblings require.
  virtual void draw(const Distributions& distributions, std::span<const TokenDraw> draws, Tensor to) = 0;
  // The k most probable tokens of every row, most probable first, the lowest among equals, and their probabilities:
  // tokens i32 [n, k], q f32 [n, k]. -1 and 0 after the last token with nonzero probability, and in rows that are not
  // finite. Called on raw distributions (temperature 1, no cut), since a warped one may have one token only.
  virtual void rank(const Distributions& raw, int k, Tensor tokens, Tensor q) = 0;
  // to[i] = *at[i], or known[i] where that address is null; kOutside if that is neither -1 nor below `vocab`. known, to
  // i32 [n]; at u64 [n] (addresses in the backend's memory).
  virtual void pick(const Tensor& known, const Tensor& at, Tensor to, int vocab) = 0;
  // The same for rows of numbers: row i of `to`, [n, width], becomes the row at address at[i] (u64 [n]), whose numbers
  // have the type `from`, or zeros where that address is null. `to` has the same type, or f32 where `from` is bf16.
  virtual void recall(const Tensor& at, Tensor to, DType from) = 0;
  // Logits of a part of a vocabulary as logits of all of it: to f32 [n, vocab] becomes -infinity, but to[i][ids[j]] =
  // from[i][j]; from f32 [n, m], ids i32 [m], in range and all different, but for -1, whose columns are left out.
  virtual void spread(const Tensor& from, const Tensor& ids, Tensor to) = 0;
  // Tokens of one vocabulary in another: tokens i32 [n] -> i32 [n], ids[token], or -1 where ids (i32) has no such
  // element.
  virtual Tensor translate(const Tensor& tokens, const Tensor& ids) = 0;
  // Host only: p[i] = distribution(begin + i) for i < n <= kTile; returns their tile_sum. Used by HostLane.
  virtual double distribution_tile(const Distribution& distribution, Token begin, int n, double* p) const {
    for (int i = 0; i < n; ++i) p[i] = distribution(begin + i);
    return tile_sum([&](int i) { return p[i]; }, 0, n);
  }

  // ---- caches ----
  // KV compaction of any number of block tables and caches at once: copies rows of pages. None of the moves reads or
  // writes a row that another one writes.
  virtual void move(std::span<const Moves> moves) = 0;

  // ---- running ----
  // Runs `body`; a device may record it and replay it for the same key, numbers that identify the body. A body has no
  // host effects: whatever changes between runs is in mirrors, its results go to memory that the caller owns, and what
  // it allocates is freed at its end. `result`: output that a second run reproduces bit for bit (dense; absent: none);
  // a device may compare it to check that the recording still matches the body. Other outputs are not compared.
  virtual void replay(std::span<const std::int64_t> key, const std::function<void()>& body, const Tensor& result = {}) {
    (void)key, (void)result, body();
  }
  // The size to which a forward pads a count n (rows, tables, distributions, slots of context), so that few replay keys
  // cover many forwards.
  virtual int padded(int n) const { return n; }
  virtual void synchronize() {}
  // Bodies that replay() recorded so far. Recording one takes milliseconds on the host.
  virtual std::uint64_t recordings() const { return 0; }
  // Whether replay() records bodies at all.
  virtual bool records() const { return false; }
  // Whether replay() records a body whose key is new; it does at first. Otherwise it runs such a body as it is, and
  // counts it in unrecorded(): that takes longer than a replay, but not the milliseconds of a recording.
  virtual void record_new(bool on) { (void)on; }
  virtual std::uint64_t unrecorded() const { return 0; }
  virtual std::uint64_t waits() const { return 0; }  // times that the host waited for the device so far
  // A point in time after all work that was queued so far, and the seconds between two of them (after synchronize()).
  virtual Mark mark();
  virtual double seconds(const Mark& from, const Mark& to) const { return to.host - from.host; }
  // The host's time in seconds, of which marks and the engine's reports are made. A test sets another clock, so that
  // what adapts to times does the same again; marks are then its times, not the device's. Null: host_clock().
  double clock() const { return clock_ ? clock_() : host_clock(); }
  void set_clock(std::function<double()> clock) { clock_ = std::move(clock); }
  // Measures the device's peaks, for rooflines; the device should be idle. Takes up to some seconds.
  virtual DeviceSpeed measure_speed();
  virtual void* stream() const { return nullptr; }  // the stream of a device that has streams (cudaStream_t); else null
  // Runs f(0) ... f(n - 1), possibly at once.
  virtual void for_each(int n, const std::function<void(int)>& f) {
    for (int i = 0; i < n; ++i) f(i);
  }
  // Decides draws in place of Philox; null outside the exact enumeration of the conformance kit.
  virtual Chance* chance() { return nullptr; }

 protected:
  bool own_clock() const { return bool(clock_); }  // set_clock() was given one

 private:
  Serial serial_;
  std::function<double()> clock_;
};

// Throws Error where a layer's pages have no room for bounds.
void expect_bounds(const KvLayer& kv);
// Throws Error unless every draw has a row of the distributions and a destination for its tokens.
void expect_draws(const Distributions& distributions, std::span<const TokenDraw> draws, const Tensor& to);
// Likewise for operations on mixtures of experts, Backend::silu_add, Backend::rank, Backend::recall and
// Backend::spread.
void expect_route(const Tensor& logits, const RoutingRules& rules);
void expect_grouped(const Tensor& x, const Routing& routing, const ExpertWeights& experts);
void expect_shares(const Tensor& x, const Tensor& y, const Routing& routing);
void expect_gated(const Tensor& x, const Tensor& y, const Tensor& logits);
void expect_silu_add(const Tensor& x, const Tensor& y);
void expect_ranks(const Distributions& raw, int k, const Tensor& tokens, const Tensor& q);
void expect_recall(const Tensor& at, const Tensor& to, DType from);
void expect_spread(const Tensor& from, const Tensor& ids, const Tensor& to);

// "reference": plain loops and Eigen, f32 activations, no threads: the oracle.
std::unique_ptr<Backend> make_reference_backend();
// "cpu": SIMD chosen at run time, threads (0: as many as the machine has). `instructions` limits the choice, for tests:
// "" (best), "amx", "avx512bf16", "avx512vnni", "avx512", "avx2", "scalar"; one that the machine lacks is an Error.
std::unique_ptr<Backend> make_cpu_backend(int threads = 0, const std::string& instructions = "");
// The instruction sets of make_cpu_backend that this machine has, best first.
std::vector<std::string> cpu_instructions();

}  // namespace foretoken
