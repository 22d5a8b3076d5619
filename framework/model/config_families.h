// The families that config.cpp reads: how a config.json names them, and Transformers' defaults. This module must not
// know what a key means.
#pragma once
#include <cstdint>

namespace foretoken::families {

// Whose attention a family has.
enum class Kind : std::uint8_t {
  llama,
  mistral,
  qwen2,
  qwen3,
  gemma2,
  gemma3,
  phi3,
  olmo2,
  smollm3,
  gpt_oss,
  deepseek2,
  deepseek3
};

// How a family names its experts, and Transformers' defaults.
struct Experts {
  const char* count = nullptr;  // the key of their number; null: the family has none
  int experts = 0, used = 0;
  const char* width = nullptr;  // the key of an expert's hidden units
  int hidden = 0;
  int shared = 0;               // shared_expert_intermediate_size; 0: the family has no shared expert
  bool norm_topk_prob = false;  // a key of the file; else shares are renormalized
};
inline constexpr Experts kMixtral{.count = "num_local_experts", .experts = 8, .used = 2, .width = "intermediate_size"};
inline constexpr Experts kQwen2Moe{.count = "num_experts",
                                   .experts = 60,
                                   .used = 4,
                                   .width = "moe_intermediate_size",
                                   .hidden = 1408,
                                   .shared = 5632,
                                   .norm_topk_prob = true};
inline constexpr Experts kQwen3Moe{.count = "num_experts",
                                   .experts = 128,
                                   .used = 8,
                                   .width = "moe_intermediate_size",
                                   .hidden = 768,
                                   .norm_topk_prob = true};
inline constexpr Experts kDeepseek2{
    .count = "n_routed_experts", .experts = 64, .width = "moe_intermediate_size", .hidden = 1407};
inline constexpr Experts kDeepseek3{
    .count = "n_routed_experts", .experts = 256, .used = 8, .width = "moe_intermediate_size", .hidden = 2048};
inline constexpr Experts kGptOss{.count = "num_local_experts", .experts = 128, .used = 4, .width = "intermediate_size"};

// Transformers' defaults where a config has no such key; a null has another meaning, as the functions below say.
struct Family {
  const char *model_type, *architecture;
  Kind kind = Kind::llama;
  int kv_heads = 0;      // num_key_value_heads; 0: as many as heads
  int head_size = 0;     // head_dim; 0: the width over the heads
  bool windows = false;  // sliding_window counts, without use_sliding_window
  int window = 0;        // sliding_window
  double rope_theta = 10000;
  Experts experts = {};
  int period = 0;          // each so many-th layer attends to all positions, the others have the window; 0: all alike
  double local_theta = 0;  // rope_local_base_freq, of layers with the window
  double attention_softcap = 0, logit_softcap = 0;  // attn_logit_softcapping, final_logit_softcapping
  bool tied = false;                                // tie_word_embeddings
  const char* rope_rule = nullptr;                  // RopeDefaults::rule
  // The object that describes the language model of one that sees too, and what may be absent in it; null: all of the
  // file is about the language model, and must say that.
  const char* text = nullptr;
  int vocab = 0, heads = 0, positions = 0;
  double epsilon = 0;
  bool gemma() const { return kind == Kind::gemma2 || kind == Kind::gemma3; }
  bool latent() const { return kind == Kind::deepseek2 || kind == Kind::deepseek3; }
};
inline constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM"},
    {"mistral", "MistralForCausalLM", Kind::mistral, 8, 0, true, 4096},
    {"qwen2", "Qwen2ForCausalLM", Kind::qwen2, 32},
    {"qwen3", "Qwen3ForCausalLM", Kind::qwen3, 32, 128},
    {.model_type = "mixtral",
     .architecture = "MixtralForCausalLM",
     .kind = Kind::mistral,
     .kv_heads = 8,
     .windows = true,
     .rope_theta = 1e6,
     .experts = kMixtral},
    {.model_type = "qwen2_moe",
     .architecture = "Qwen2MoeForCausalLM",
     .kind = Kind::qwen2,
     .kv_heads = 16,
     .experts = kQwen2Moe},
    {.model_type = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .kind = Kind::qwen3,
     .kv_heads = 4,
     .experts = kQwen3Moe},
    {.model_type = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .kind = Kind::gemma2,
     .kv_heads = 4,
     .head_size = 256,
     .windows = true,
     .window = 4096,
     .period = 2,
     .attention_softcap = 50,
     .logit_softcap = 30,
     .tied = true},
    {.model_type = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .kind = Kind::gemma3,
     .kv_heads = 4,
     .head_size = 256,
     .windows = true,
     .window = 4096,
     .rope_theta = 1e6,
     .period = 6,
     .local_theta = 10000,
     .tied = true},
    {.model_type = "gemma3",
     .architecture = "Gemma3ForConditionalGeneration",
     .kind = Kind::gemma3,
     .kv_heads = 4,
     .head_size = 256,
     .windows = true,
     .window = 4096,
     .rope_theta = 1e6,
     .period = 6,
     .local_theta = 10000,
     .tied = true,
     .text = "text_config",
     .vocab = 262208,
     .heads = 8,
     .positions = 131072,
     .epsilon = 1e-6},
    {.model_type = "phi3", .architecture = "Phi3ForCausalLM", .kind = Kind::phi3, .windows = true},
    {.model_type = "olmo2", .architecture = "Olmo2ForCausalLM", .kind = Kind::olmo2},
    {.model_type = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .kind = Kind::smollm3,
     .kv_heads = 4,
     .rope_theta = 2e6,
     .tied = true},
    {.model_type = "gpt_oss",
     .architecture = "GptOssForCausalLM",
     .kind = Kind::gpt_oss,
     .kv_heads = 8,
     .head_size = 64,
     .windows = true,
     .window = 128,
     .rope_theta = 150000,
     .experts = kGptOss,
     .period = 2,
     .rope_rule = R"({"rope_type": "yarn", "factor": 32, "beta_fast": 32, "beta_slow": 1, "truncate": false,
                      "original_max_position_embeddings": 4096})"},
    {.model_type = "deepseek_v2",
     .architecture = "DeepseekV2ForCausalLM",
     .kind = Kind::deepseek2,
     .experts = kDeepseek2},
    {.model_type = "deepseek_v3",
     .architecture = "DeepseekV3ForCausalLM",
     .kind = Kind::deepseek3,
     .experts = kDeepseek3}};

}  // namespace foretoken::families
