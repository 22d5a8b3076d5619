// Multi-head latent attention (DeepSeek-V2: arXiv 2405.04434), as the first half of a decoder layer. A position keeps
// one latent c and a few rotated numbers r for all heads. A head's key is [Wk c ; r] and its value Wv c, so that its
// score is (Wk^T q) . c + q_r . r, and what it attends to Wv (sum of shares * c): all heads read one key of the cache,
// [r ; c], whose value is its last part, and Wk and Wv are applied to queries and results. Pages, trees, views and
// quantized caches see a layer of one head. This module must not know what stands before or behind it.
//
// Bytes of a position: (rotated + rank) numbers. Operations of a row: 2 heads (2 rank + rotated) a slot, and 2 heads
// rank (plain + value) for the products of heads.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "framework/model/config.h"
#include "framework/model/model.h"
#include "framework/model/weight_loader.h"

namespace foretoken {

// The cache of a model of this configuration, of latent attention.
KvShape kept_latents(const ModelConfig& config, DType dtype);

class LatentAttention {
 public:
  // The tensors PREFIX + "self_attn.kv_b_proj.weight" and so on, without the norm before them and o_proj.
  static std::map<std::string, Shape> tensors(const ModelConfig& config, const std::string& prefix);
  LatentAttention(const WeightLoader& load, const ModelConfig& config, const std::string& prefix);

  // The queries of rows x [rows, width] behind a norm, f32 [rows, heads (rotated + rank)], and their keys, f32 [rows,
  // rotated + rank], both not yet rotated.
  struct Projected {
    Tensor q, k;
  };
  Projected project(Backend& backend, const Tensor& x, const Tensor& gain, float epsilon) const;
  // The values of all heads, f32 [rows, heads value], of what they attend to, f32 [rows, heads rank].
  Tensor values_of(Backend& backend, const Tensor& attended) const;

  std::int64_t bytes() const;  // of its matrices

 private:
  LatentConfig latent_;
  int heads_;
  Products from_input_;              // [query_rank or heads (plain + rotated), then rank + rotated, width]
  Tensor query_norm_, latent_norm_;  // f32 [query_rank], [rank]; the former absent without such a rank
  Weight queries_;                   // [heads (plain + rotated), query_rank]; absent likewise
  std::vector<Weight> keys_;         // of each head: Wk^T [rank, plain]
  std::vector<Weight> values_;       // of each head: Wv [value, rank]
};

}  // namespace foretoken
