#include "framework/model/decoder_layer.h"

#include <cmath>

#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr const char* kAttentionPostNorm = "post_attention_layernorm.weight";

bool rotates_whole_heads(const ModelConfig& c) { return c.rotary == 0 || c.rotary == c.head_size; }

}  // namespace

// Where all numbers of a head are rotated, the factor of cosines and sines is one of scores instead, squared: no device
// needs to know it, and keys in a cache are without it.
AttentionRules attention_rules(const ModelConfig& c) {
  const double scalar = c.query_scalar > 0 ? c.query_scalar : c.head_size;
  const double factor = rotates_whole_heads(c) && !c.still ? c.rope_scaling.attention_factor : 1;
  // DeepSeek's rule for YaRN sharpens scores too.
  const double sharper = c.latent ? yarn_scale(c.rope_scaling.factor, c.rope_scaling.all_dim_scale) : 1;
  return {float(factor * factor * sharper * sharper) / std::sqrt(float(scalar)), float(c.attention_softcap)};
}

RotaryRules rotation_of(Backend& backend, const ModelConfig& c) {
  const std::vector<float> frequencies = c.rope_frequencies();
  RotaryRules rules(backend.upload(Tensor::host_copy<float>(frequencies, DType::f32)),
                    rotates_whole_heads(c) || c.still ? 1.0f : float(c.rope_scaling.attention_factor));
  rules.neighbours = c.latent && c.latent->neighbours;
  return rules;
}

std::map<std::string, Shape> DecoderLayer::tensors(const ModelConfig& c, const std::string& prefix,
                                                   Projections projections) {
  const std::int64_t q = std::int64_t(c.heads) * c.head_size, kv = std::int64_t(c.kv_heads) * c.head_size;
  const std::string attention = prefix + "self_attn.";
  std::map<std::string, Shape> all;
  const auto matrix = [&](const std::string& name, std::int64_t rows, std::int64_t columns, bool bias) {
    all[name + ".weight"] = {rows, columns};
    if (bias) all[name + ".bias"] = {rows};
  };
  if (c.head_norms) {
    all[attention + "q_norm.weight"] = {c.joint_norms ? q : c.head_size};
    all[attention + "k_norm.weight"] = {c.joint_norms ? kv : c.head_size};
  }
  if (c.sinks) all[attention + "sinks"] = {c.heads};
  if (projections != Projections::none && c.pre_norms) all[prefix + "input_layernorm.weight"] = {c.width};
  if (c.post_norms) all[prefix + kAttentionPostNorm] = {c.width};
  if (c.latent) {
    all.merge(LatentAttention::tensors(c, prefix));
  } else if (c.fused) {
    matrix(attention + "qkv_proj", q + 2 * kv, c.width, c.qkv_bias);
  } else if (projections != Projections::none) {
    matrix(attention + "q_proj", q, c.width, c.qkv_bias);
    matrix(attention + "k_proj", kv, c.width, c.qkv_bias);
    matrix(attention + "v_proj", kv, c.width, c.qkv_bias);
  }
  matrix(attention + "o_proj", c.width, c.latent ? std::int64_t(c.heads) * c.latent->value : q, c.out_bias);
  if (c.ffn > 0) all.merge(FeedForward::tensors(c, prefix));
  return all;
}

DecoderLayer::DecoderLayer(const WeightLoader& load, const ModelConfig& c, const std::string& prefix,
                           Projections projections)
    : epsilon_(float(c.norm_epsilon)),
      heads_(c.heads),
      kv_heads_(c.kv_heads),
      head_size_(c.head_size),
      window_(c.window),
      rules_(attention_rules(c)),
      rotation_(rotation_of(load.backend(), c)),
      rank_(c.rank) {
  const std::string attention = prefix + "self_attn.";
  q_norm_ = load.vector_if(attention + "q_norm.weight"), k_norm_ = load.vector_if(attention + "k_norm.weight");
  const std::string q = attention + "q_proj", k = attention + "k_proj", v = attention + "v_proj";
  rules_.sinks = load.vector_if(attention + "sinks");
  if (projections != Projections::none && c.pre_norms) attention_norm_ = load.vector(prefix + "input_layernorm.weight");
  if (c.post_norms) post_norm_ = load.vector(prefix + kAttentionPostNorm);
  if (c.latent && projections != Projections::own)
    throw Error("latent attention makes keys of its input alone; choose a head whose target has none");
  if (c.latent)
    latent_ = std::make_shared<const LatentAttention>(load, c, prefix);
  else if (c.fused)
    qkv_ = load.products({attention + "qkv_proj"});
  else if (projections == Projections::own)
    qkv_ = load.products({q, k, v});
  if (projections == Projections::apart) q_ = load.products({q}), kv_ = load.products({k, v});
  out_ = load.one(attention + "o_proj");
  if (c.ffn > 0) feed_forward_ = FeedForward::load(load, c, prefix);
}

void DecoderLayer::forward(Backend& b, const Tensor& x, const Layout& layout, const KvLayer& kv) const {
  attend(b, x, layout, kv);
  feed_forward(b, x);
}

Tensor DecoderLayer::projected(Backend& b, const Tensor& x, const Products& by) const {
  return attention_norm_ ? by.after_norm(b, x, attention_norm_, epsilon_) : by.of(b, x);
}

void DecoderLayer::attend(Backend& b, const Tensor& x, const Layout& layout, const KvLayer& kv,
                          const Tensor& mass) const {
  if (latent_) {
    const auto [q, k] = latent_->project(b, x, attention_norm_, epsilon_);
    const Tensor seen = attended(b, q, k, {}, layout.first ? without_window(layout) : layout, kv, mass);
    return add_attended(b, x, latent_->values_of(b, seen));
  }
  if (q_.parts.empty()) {
    const Tensor qkv = projected(b, x, qkv_);
    return attend(b, x, qkv, layout, kv, mass);
  }
  const Tensor q = projected(b, x, q_), k_v = projected(b, x, kv_);
  const std::int64_t nkv = std::int64_t(kv_heads_) * head_size_;
  attend(b, x, q, k_v.columns(0, nkv), k_v.columns(nkv, nkv), layout, kv, mass);
}

void DecoderLayer::attend(Backend& b, const Tensor& x, const Tensor& qkv, const Layout& layout, const KvLayer& kv,
                          const Tensor& mass) const {
  const std::int64_t nq = std::int64_t(heads_) * head_size_, nkv = std::int64_t(kv_heads_) * head_size_;
  attend(b, x, qkv.columns(0, nq), qkv.columns(nq, nkv), qkv.columns(nq + nkv, nkv), layout, kv, mass);
}

void DecoderLayer::attend(Backend& b, const Tensor& x, Tensor q, Tensor k, const Tensor& v, const Layout& layout,
                          const KvLayer& kv, const Tensor& mass) const {
  if (window_ == 0 && layout.first) return attend(b, x, q, k, v, without_window(layout), kv, mass);
  if (q_norm_) {
    b.head_norm(q, q_norm_, epsilon_);
    b.head_norm(k, k_norm_, epsilon_);
  }
  add_attended(b, x, attended(b, q, k, v, layout, kv, mass));
}

Tensor DecoderLayer::attended(Backend& b, const Tensor& q, const Tensor& k, const Tensor& v, const Layout& layout,
                              const KvLayer& kv, const Tensor& mass) const {
  if (layout.selection.width == 0 && !mass) return b.rope_attend(q, k, v, kv, layout, rotation_, rules_);
  b.rope_store(q, k, v, kv, layout, rotation_);
  if (layout.selection.width == 0) {
    b.add(mass, b.attention_mass(q, kv, layout, rules_));
    return b.attend(q, kv, layout, rules_);
  }
  Layout selected = layout;
  selected.tables = b.select_pages(q, kv, layout), selected.head_tables = true;
  return b.attend(q, kv, selected, rules_);
}

void DecoderLayer::add_attended(Backend& b, const Tensor& x, const Tensor& attended) const {
  if (!post_norm_ && !rank_) return b.linear_add(x, attended, out_);
  const Tensor y = b.linear(attended, out_);
  if (rank_) b.all_reduce(y, *rank_);
  b.add(x, post_norm_ ? b.rms_norm(y, post_norm_, epsilon_) : y);
}

void DecoderLayer::keep(Backend& b, const Tensor& x, const Tensor& gain, const Layout& layout,
                        const KvLayer& kv) const {
  const std::int64_t nkv = std::int64_t(kv_heads_) * head_size_;
  const Tensor k_v = kv_.after_norm(b, x, gain, epsilon_), k = k_v.columns(0, nkv);
  if (k_norm_) b.head_norm(k, k_norm_, epsilon_);
  b.rope_store({}, k, k_v.columns(nkv, nkv), kv, layout, rotation_);
}

}  // namespace foretoken
