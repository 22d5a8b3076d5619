#include "framework/model/config_latent.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr int kMostNumbers = 1 << 24;  // as in config.cpp

}  // namespace

void read_latent(const Fields& config, bool third, ModelConfig& m) {
  LatentConfig x;
  const auto size = [&](const char* key, int absent) { return config.integer_or(key, 1, kMostNumbers, absent); };
  x.rank = size("kv_lora_rank", 512);
  x.query_rank = config.integer_or("q_lora_rank", 1, kMostNumbers, config.all().contains("q_lora_rank") ? 0 : 1536);
  x.plain = size("qk_nope_head_dim", 128), x.rotated = size("qk_rope_head_dim", 64), x.value = size("v_head_dim", 128);
  x.neighbours = !third || config.boolean_or("rope_interleave", true);
  if (x.rotated % 2) config.refuse("qk_rope_head_dim", "must be even for the rotation");
  if (m.kv_heads != m.heads)
    config.refuse("num_key_value_heads", "must be num_attention_heads (" + std::to_string(m.heads) + ")");
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (config.boolean_or(key, false)) config.refuse(key, "only false is supported by latent attention");
  m.head_size = x.plain + x.rotated, m.rotary = x.rotated, m.latent = x;
  for (const auto& [key, numbers] : {std::pair("qk_nope_head_dim", x.plain + x.rank), {"v_head_dim", x.value}})
    if (std::int64_t(m.heads) * (numbers + x.rotated) > kMostNumbers)
      config.refuse(key, "that times num_attention_heads is beyond any model");
}

// Of DeepSeek, whose first layers are dense. V2 scores experts by their softmax, of which a group has its greatest; V3
// by sigmoids, of which a group has the two greatest, with a correction.
void read_routing(const Fields& config, bool third, int layers, MixtureConfig& x) {
  const auto only = [&](const char* key, const std::string& value) {
    if (config.string_or(key, value) != value) config.refuse(key, "the only one supported is \"" + value + "\"");
  };
  only("scoring_func", third ? "sigmoid" : "softmax");
  const std::string method = config.string_or("topk_method", third ? "noaux_tc" : "greedy");
  if (third)
    only("topk_method", "noaux_tc");
  else if (method != "greedy" && method != "group_limited_greedy")
    config.refuse("topk_method", "the supported ones are \"greedy\" and \"group_limited_greedy\"");
  if (!third && config.boolean_or("norm_topk_prob", false))
    config.refuse("norm_topk_prob", "only false is supported, as in Transformers");
  if (config.integer_or("moe_layer_freq", 1, kMostNumbers, 1) != 1)
    config.refuse("moe_layer_freq", "only 1 is supported");
  x.renormalized = third && config.boolean_or("norm_topk_prob", true);
  x.sigmoid = x.corrected = x.sums_two = third;
  x.scale = config.positive_or("routed_scaling_factor", third ? 2.5 : 1);
  if (third || method != "greedy") {
    x.groups = config.integer_or("n_group", 1, x.experts, third ? 8 : 1);
    x.used_groups = config.integer_or("topk_group", 1, x.groups, third ? 4 : 1);
  }
  if (x.used_groups > x.groups)
    config.refuse("topk_group", "must be at most n_group (" + std::to_string(x.groups) + ")");
  const int size = x.experts / x.groups;
  if (x.experts % x.groups || (third && size < 2))
    config.refuse("n_group", "must divide the " + std::to_string(x.experts) + " experts into groups of " +
                                 (third ? "two or more" : "one size"));
  if (x.used > x.used_groups * size)
    config.refuse("topk_group", "must be of groups that have at least num_experts_per_tok (" + std::to_string(x.used) +
                                    ") experts together");
  x.shared_width = x.width * config.integer_or("n_shared_experts", 0, 1 << 10, third ? 1 : 2);
  x.shared_gate = false;
  const int dense = config.integer_or("first_k_dense_replace", 0, layers, std::min(third ? 3 : 0, layers));
  for (int l = 0; l < dense; ++l) x.dense_layers.push_back(l);
}

}  // namespace foretoken
