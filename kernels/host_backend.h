// What all backends in host memory share: copies, and distributions by their scalar definition. This module must not
// know how products or attention are computed; the reference and cpu backends define that.
#pragma once
#include <span>
#include <string>

#include "kernels/backend.h"
#include "kernels/host_memory.h"

namespace foretoken {

// Copies between tensors of the same shape and type in host memory; rows may be strided.
void copy_on_host(const Tensor& from, Tensor to);

class HostBackend : public Backend {
 public:
  Tensor allocate(Shape shape, DType dtype) override { return Tensor::host(shape, dtype); }
  Tensor upload(const Tensor& host) override { return host; }
  std::int64_t free_memory() const override { return free_host_memory(); }
  void copy(const Tensor& from, Tensor to) override { copy_on_host(from, to); }
  void head_norm(Tensor x, const Tensor& gain, float epsilon) override;
  void scale(Tensor x, float by) override;
  void store(const Tensor& k, const Tensor& v, const KvLayer& kv, const Layout& layout) override;
  // host_pages.cpp
  void bound_pages(std::span<const KvLayer> layers, std::span<const std::int32_t> pages) override;
  Tensor select_pages(const Tensor& q, const KvLayer& kv, const Layout& layout) override;
  Tensor gather(const Tensor& x, const Tensor& rows) override;
  // host_experts.cpp
  using Backend::route;
  Routing route(const Tensor& logits, const RoutingRules& rules) override;
  void add_shares(Tensor x, const Tensor& y, const Routing& routing) override;
  void add_gated(Tensor x, const Tensor& y, const Tensor& logits) override;
  Routing held_experts(const Routing& routing, int first, int count) override;
  void all_reduce(Tensor x, const Rank& rank) override;  // host_ranks.cpp
  Distributions distributions(const Tensor& logits, std::span<const Warp> warps) override;
  void adjust(Tensor logits, std::span<const Adjustment> adjustments) override;
  void mask(Tensor logits, std::span<const std::uint32_t* const> allowed) override;
  // A row whose distribution is invalid (DistributionRow::greedy == -1) draws token -1.
  void draw(const Distributions& distributions, std::span<const TokenDraw> draws, Tensor to) override;
  void rank(const Distributions& raw, int k, Tensor tokens, Tensor q) override;
  void pick(const Tensor& known, const Tensor& at, Tensor to, int vocab) override;
  void recall(const Tensor& at, Tensor to, DType from) override;
  void spread(const Tensor& from, const Tensor& ids, Tensor to) override;
  Tensor translate(const Tensor& tokens, const Tensor& ids) override;
  void move(std::span<const Moves> moves) override;

  Chance* chance() override { return chance_; }
  void set_chance(Chance* chance) { chance_ = chance; }  // for exact enumeration; not owned

 protected:
  // The tokens of one draw, by a HostLane.
  void draw_one(const Distribution& distribution, const TokenDraw& draw, Token* to);

 private:
  Chance* chance_ = nullptr;
};

// Writes `row` as row i of `distributions`; the padding after its last field is zeroed, so that equal distributions are
// equal bytes.
void keep_distribution(const DistributionRow& row, Distributions& distributions, int i);

// The address of `slot` in a plane of a layer: the item of head h is at result + h * page_rows * plane.bytes.
std::byte* slot_address(const KvLayer& kv, const KvPlane& plane, const std::int32_t* table, std::int32_t slot);
// Of its keys or values, which begin at byte `begin` of a page.
std::byte* slot_address(const KvLayer& kv, std::int64_t begin, const std::int32_t* table, std::int32_t slot);

// Adds a weight's bias, where it has one, to the rows of a product y [rows, out].
void add_bias(Tensor y, const Weight& w);

// Throws Error unless x is f32 [rows, width].
void expect_rows(const char* operation, const Tensor& x, std::int64_t width);

}  // namespace foretoken
