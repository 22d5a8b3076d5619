#include "framework/model/decoder_layer.h"

#include <cmath>

namespace foretoken {
namespace {

constexpr const char* kAttentionPostNorm = "post_attention_layernorm.weight";

}  // namespace

AttentionRules attention_rules(const ModelConfig& c) {
  const double scalar = c.query_scalar > 0 ? c.query_scalar : c.head_size;
  return {1.0f / std::sqrt(float(scalar)), float(c.attention_softcap)};
}

RotaryRules rotation_of(Backend& backend, const ModelConfig& c) {
  const std::vector<float> frequencies = c.rope_frequencies();
  return {backend.upload(Tensor::host_copy<float>(frequencies, DType::f32)), float(c.rope_scaling.attention_factor)};
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
  for (const char* norm : {"q_norm", "k_norm"})
    if (c.head_norms) all[attention + norm + ".weight"] = {c.head_size};
  if (projections != Projections::none) all[prefix + "input_layernorm.weight"] = {c.width};
  if (c.post_norms) all[prefix + kAttentionPostNorm] = {c.width};
  if (c.fused) {
    matrix(attention + "qkv_proj", q + 2 * kv, c.width, c.qkv_bias);
  } else if (projections != Projections::none) {
    matrix(attention + "q_proj", q, c.width, c.qkv_bias);
    matrix(attention + "k_proj", kv, c.width, c.qkv_bias);
    matrix(attention + "v_proj", kv, c.width, c.qkv_bias);
  }
  matrix(attention + "o_proj", c.width, q, c.out_bias);
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
  if (projections != Projections::none) attention_norm_ = load.vector(prefix + "input_layernorm.weight");
  if (c.post_norms) post_norm_ = load.vector(prefix + kAttentionPostNorm);
  if (c.fused)
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

void DecoderLayer::attend(Backend& b, const Tensor& x, const Layout& layout, const KvLayer& kv,
                          const Tensor& mass) const {
  if (q_.parts.empty()) {
    const Tensor qkv = qkv_.after_norm(b, x, attention_norm_, epsilon_);
    return attend(b, x, qkv, layout, kv, mass);
  }
  const Tensor q = q_.after_norm(b, x, attention_norm_, epsilon_),
               k_v = kv_.after_norm(b, x, attention_norm_, epsilon_);
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
  if (layout.selection.width > 0) {
    b.rope_store(q, k, v, kv, layout, rotation_);
    Layout selected = layout;
    selected.tables = b.select_pages(q, kv, layout), selected.head_tables = true;
    return add_attended(b, x, b.attend(q, kv, selected, rules_));
  }
  if (!mass) return add_attended(b, x, b.rope_attend(q, k, v, kv, layout, rotation_, rules_));
  b.rope_store(q, k, v, kv, layout, rotation_);
  add_attended(b, x, b.attend(q, kv, layout, rules_));
  b.add(mass, b.attention_mass(q, kv, layout, rules_));
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
