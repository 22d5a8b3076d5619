#include "framework/model/gguf/gguf_latent.h"

#include <algorithm>
#include <set>

#include "framework/model/gguf/gguf_cursor.h"

namespace foretoken {
namespace {

constexpr int kMostLatent = 1 << 24;
constexpr int kSoftmaxScores = 1, kSigmoidScores = 2;  // llama.cpp's numbers

struct LatentName {
  const char *gguf, *hugging_face;
};
constexpr LatentName kLatentNames[] = {{"attn_q_a.weight", "self_attn.q_a_proj.weight"},
                                       {"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight"},
                                       {"attn_q_b.weight", "self_attn.q_b_proj.weight"},
                                       {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight"},
                                       {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight"},
                                       {"attn_kv_b.weight", "self_attn.kv_b_proj.weight"},
                                       {"attn_k_b.weight", "self_attn.k_b_proj.weight"},
                                       {"attn_v_b.weight", "self_attn.v_b_proj.weight"},
                                       {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
                                       {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"},
                                       {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"},
                                       {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"}};

}  // namespace

bool is_latent_key(const std::string& key) {
  static const std::set<std::string> all = {
      "attention.q_lora_rank",      "attention.kv_lora_rank",    "attention.key_length_mla",
      "attention.value_length_mla", "leading_dense_block_count", "expert_shared_count",
      "expert_group_count",         "expert_group_used_count",   "expert_gating_func",
      "expert_weights_norm",        "expert_weights_scale",      "rope.scaling.yarn_log_multiplier"};
  return all.contains(key);
}

// Files that were converted before llama.cpp had latent attention give the sizes of heads without "_mla", and have one
// matrix for keys and values.
void read_gguf_latent(const GgufFile& file, const std::string& prefix, ModelConfig& c) {
  const GgufMetadata& m = file.metadata();
  const std::string a = prefix + "attention.", rotated = prefix + "rope.dimension_count";
  const auto size = [&](const std::string& key) { return m.integer(key, 1, kMostLatent); };
  const auto length = [&](const std::string& key) { return m.has(key + "_mla") ? key + "_mla" : key; };
  LatentConfig x;
  x.rank = size(a + "kv_lora_rank");
  x.query_rank = m.integer_or(a + "q_lora_rank", 1, kMostLatent, 0);
  x.rotated = size(rotated);
  c.head_size = size(length(a + "key_length")), x.value = size(length(a + "value_length"));
  x.plain = c.head_size - x.rotated;
  if (x.plain < 1 || x.rotated % 2)
    m.refuse(rotated, "must be even and less than attention.key_length" + std::string(kConvertAgain));
  const std::int64_t most = std::int64_t(c.heads) * std::max(c.head_size + x.rank, x.value);
  if (most > kMostLatent)
    m.refuse(a + "head_count", std::string("that times the size of heads is beyond any model") + kConvertAgain);
  x.split = file.tensors().contains("blk.0.attn_k_b.weight");
  c.latent = x, c.kv_heads = c.heads, c.rotary = x.rotated;
}

// As llama.cpp has it, which takes the two scales of DeepSeek's rule for equal.
void scale_gguf_latent(const GgufFile& file, const std::string& prefix, ModelConfig& c) {
  const std::string key = prefix + "rope.scaling.yarn_log_multiplier";
  if (c.rope_scaling.kind != RopeScaling::Kind::yarn || !file.metadata().has(key)) return;
  c.rope_scaling.attention_factor = 1;
  c.rope_scaling.all_dim_scale = file.metadata().positive(key) * 10;
}

void read_gguf_routing(const GgufFile& file, const std::string& prefix, ModelConfig& c) {
  const GgufMetadata& m = file.metadata();
  MixtureConfig& x = *c.mixture;
  const std::string gating = prefix + "expert_gating_func", groups = prefix + "expert_group_count",
                    norm = prefix + "expert_weights_norm";
  const bool sigmoid = m.integer_or(gating, 0, 1 << 10, kSoftmaxScores) == kSigmoidScores;
  if (!sigmoid && m.integer_or(gating, 0, 1 << 10, kSoftmaxScores) > kSoftmaxScores)
    m.refuse(gating, "the supported ones are 1 (softmax) and 2 (sigmoid); choose a model of one of them");
  c.architecture = sigmoid ? "DeepseekV3ForCausalLM" : "DeepseekV2ForCausalLM";
  x.sigmoid = x.sums_two = sigmoid;
  for (const auto& [name, tensor] : file.tensors()) x.corrected = x.corrected || name.ends_with(".exp_probs_b.bias");
  x.renormalized = m.boolean_or(norm, false);
  x.scale = m.positive_or(prefix + "expert_weights_scale", 1);
  x.groups = m.integer_or(groups, 1, x.experts, 1);
  x.used_groups = m.integer_or(prefix + "expert_group_used_count", 1, x.groups, x.groups);
  const int size = x.experts / x.groups;
  if (x.experts % x.groups || (sigmoid && size < 2) || x.used > x.used_groups * size)
    m.refuse(groups, "does not divide " + std::to_string(x.experts) + " experts into groups of which a row uses " +
                         std::to_string(x.used) + " experts" + kConvertAgain);
  x.shared_width = x.width * m.integer_or(prefix + "expert_shared_count", 0, 1 << 10, 0);
  x.shared_gate = false;
}

std::string latent_name(const std::string& own) {
  for (const LatentName& n : kLatentNames)
    if (own == n.gguf) return n.hugging_face;
  return "";
}

}  // namespace foretoken
