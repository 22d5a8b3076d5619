// One layer of a transformer of the Llama family, with its own rule of positions (rotation, window), as a part that
// others are made of: the target has a stack of them, and a draft head one or a few behind another input. It loads
// itself from tensors under a prefix. This module must not know what stands before or behind the layer.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "framework/model/config.h"
#include "framework/model/feed_forward.h"
#include "framework/model/latent_attention.h"
#include "framework/model/model.h"
#include "framework/model/weight_loader.h"

namespace foretoken {

AttentionRules attention_rules(const ModelConfig& config);
RotaryRules rotation_of(Backend& backend, const ModelConfig& config);

class DecoderLayer {
 public:
  // The first norm, and the matrices of q, k and v: those of this layer, with that of q apart where keep() makes keys
  // and values alone; or none, where whoever has the layer makes q, k and v of something else than its input.
  enum class Projections : std::uint8_t { own, apart, none };

  // The tensors PREFIX + "self_attn.q_proj.weight" and so on, with shapes by the configuration (of a layer:
  // ModelConfig::of_layer).
  static std::map<std::string, Shape> tensors(const ModelConfig& config, const std::string& prefix,
                                              Projections projections = Projections::own);
  DecoderLayer(const WeightLoader& load, const ModelConfig& config, const std::string& prefix,
               Projections projections = Projections::own);

  // The whole layer: x [rows, width] f32 += attention(x), then += feed-forward(x). Writes the rows' keys and values to
  // `kv`. Layout::first is that of layers with a window.
  void forward(Backend& backend, const Tensor& x, const Layout& layout, const KvLayer& kv) const;
  // The first sublayer alone, of its own projections, or of q, k and v [rows, (heads + 2 kv_heads) head_size], side by
  // side; q and k are changed. `mass`: Rows::mass.
  void attend(Backend& backend, const Tensor& x, const Layout& layout, const KvLayer& kv,
              const Tensor& mass = {}) const;
  void attend(Backend& backend, const Tensor& x, const Tensor& qkv, const Layout& layout, const KvLayer& kv,
              const Tensor& mass = {}) const;
  // Keys and values alone, of rows that have no queries: those of rms_norm(x, gain), x f32 [rows, width], which takes
  // the place of the first norm. Of projections that are apart.
  void keep(Backend& backend, const Tensor& x, const Tensor& gain, const Layout& layout, const KvLayer& kv) const;
  // The second sublayer alone. Not of a layer without one (ModelConfig::ffn is 0).
  void feed_forward(Backend& backend, const Tensor& x) const { feed_forward_->add_to(backend, x); }

  // Of the matrices of each sublayer.
  std::int64_t attention_bytes() const {
    return qkv_.bytes() + q_.bytes() + kv_.bytes() + out_.bytes() + (latent_ ? latent_->bytes() : 0);
  }
  std::int64_t kept_bytes() const { return kv_.bytes(); }  // keep() alone
  std::int64_t feed_forward_bytes() const { return feed_forward_ ? feed_forward_->bytes() : 0; }
  std::int64_t expert_bytes() const { return feed_forward_ ? feed_forward_->expert_bytes() : 0; }  // of those

 private:
  void attend(Backend& backend, const Tensor& x, Tensor q, Tensor k, const Tensor& v, const Layout& layout,
              const KvLayer& kv, const Tensor& mass) const;
  Tensor projected(Backend& backend, const Tensor& x, const Products& by) const;  // of the norm of x
  // Of q, k and v behind their norms; q and k are not yet rotated. `layout` is that of this layer.
  Tensor attended(Backend& backend, const Tensor& q, const Tensor& k, const Tensor& v, const Layout& layout,
                  const KvLayer& kv, const Tensor& mass) const;
  void add_attended(Backend& backend, const Tensor& x, const Tensor& attended) const;

  float epsilon_;
  int heads_, kv_heads_, head_size_, window_;
  AttentionRules rules_;
  RotaryRules rotation_;
  std::shared_ptr<const Rank> rank_;                 // of a divided model
  Tensor attention_norm_;                            // f32 [width]; absent without projections, or norms before them
  Tensor post_norm_;                                 // f32 [width], of what attention adds; absent: as it is
  Tensor q_norm_, k_norm_;                           // f32 [head_size], or of all heads; absent without head norms
  Products qkv_;                                     // [(heads + 2 kv_heads) head_size, width]
  Products q_, kv_;                                  // its parts, in its place where they are apart
  std::shared_ptr<const LatentAttention> latent_;    // in the place of the three; null: they are there
  Weight out_;                                       // [width, heads head_size]
  std::shared_ptr<const FeedForward> feed_forward_;  // null in a layer without one
};

}  // namespace foretoken
