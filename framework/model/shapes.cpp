#include "framework/model/shapes.h"

#include <algorithm>

#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

struct Published {
  const char* name;
  const char* config;
};

// huggingface.co/meta-llama/Llama-3.1-8B, Llama-3.1-70B, Llama-3.2-1B, Llama-3.2-3B, Llama-2-7b-hf; Qwen/Qwen3-8B,
// Qwen3-0.6B, Qwen3-30B-A3B; mistralai/Mixtral-8x7B-v0.1; google/gemma-2-2b, gemma-2-9b, gemma-2-27b, gemma-3-1b-pt,
// and the text models of gemma-3-4b-pt, gemma-3-12b-pt, gemma-3-27b-pt; microsoft/Phi-3-mini-4k-instruct, phi-4,
// Phi-4-mini-instruct (without its long factors): config.json without keys for training and dispatch only.
constexpr Published kPublished[] = {
    {"llama-3.1-8b", R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 4096,
       "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
       "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "rope_theta": 500000.0,
       "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 8192},
       "bos_token_id": 128000, "eos_token_id": 128001})"},
    {"llama-3.1-70b", R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 8192,
       "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
       "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "rope_theta": 500000.0,
       "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 8192},
       "bos_token_id": 128000, "eos_token_id": 128001})"},
    {"llama-3.2-1b", R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 2048,
       "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
       "head_dim": 64, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "tie_word_embeddings": true,
       "rope_theta": 500000.0,
       "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 8192},
       "bos_token_id": 128000, "eos_token_id": 128001})"},
    {"llama-3.2-3b", R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 3072,
       "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24, "num_key_value_heads": 8,
       "head_dim": 128, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "tie_word_embeddings": true,
       "rope_theta": 500000.0,
       "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 8192},
       "bos_token_id": 128000, "eos_token_id": 128001})"},
    {"llama-2-7b", R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 32000, "hidden_size": 4096,
       "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
       "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "rope_scaling": null,
       "bos_token_id": 1, "eos_token_id": 2})"},
    {"qwen3-8b", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936,
       "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
       "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu", "attention_bias": false,
       "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "tie_word_embeddings": false, "rope_theta": 1000000,
       "rope_scaling": null, "use_sliding_window": false, "sliding_window": null, "max_window_layers": 36,
       "bos_token_id": 151643, "eos_token_id": 151645})"},
    {"qwen3-0.6b", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151936,
       "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
       "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu", "attention_bias": false,
       "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "tie_word_embeddings": true, "rope_theta": 1000000,
       "rope_scaling": null, "use_sliding_window": false, "sliding_window": null, "max_window_layers": 28,
       "bos_token_id": 151643, "eos_token_id": 151645})"},
    {"qwen3-30b-a3b", R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 151936,
       "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32,
       "num_key_value_heads": 4, "head_dim": 128, "hidden_act": "silu", "attention_bias": false,
       "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": true,
       "decoder_sparse_step": 1, "mlp_only_layers": [], "max_position_embeddings": 40960, "rms_norm_eps": 1e-06,
       "tie_word_embeddings": false, "rope_theta": 1000000.0, "rope_scaling": null, "use_sliding_window": false,
       "sliding_window": null, "max_window_layers": 48, "bos_token_id": 151643, "eos_token_id": 151645})"},
    {"mixtral-8x7b", R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "vocab_size": 32000,
       "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
       "num_key_value_heads": 8, "hidden_act": "silu", "num_local_experts": 8, "num_experts_per_tok": 2,
       "max_position_embeddings": 32768, "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "rope_theta": 1000000.0,
       "sliding_window": null, "bos_token_id": 1, "eos_token_id": 2})"},
    {"gemma-2-2b", R"({"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "vocab_size": 256000,
       "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
       "num_key_value_heads": 4, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
       "hidden_activation": "gelu_pytorch_tanh", "attention_bias": false, "attn_logit_softcapping": 50.0,
       "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 256, "sliding_window": 4096,
       "max_position_embeddings": 8192, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "bos_token_id": 2,
       "eos_token_id": 1})"},
    {"gemma-2-9b", R"({"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "vocab_size": 256000,
       "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42, "num_attention_heads": 16,
       "num_key_value_heads": 8, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
       "hidden_activation": "gelu_pytorch_tanh", "attention_bias": false, "attn_logit_softcapping": 50.0,
       "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 256, "sliding_window": 4096,
       "max_position_embeddings": 8192, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "bos_token_id": 2,
       "eos_token_id": 1})"},
    {"gemma-2-27b", R"({"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "vocab_size": 256000,
       "hidden_size": 4608, "intermediate_size": 36864, "num_hidden_layers": 46, "num_attention_heads": 32,
       "num_key_value_heads": 16, "head_dim": 128, "hidden_act": "gelu_pytorch_tanh",
       "hidden_activation": "gelu_pytorch_tanh", "attention_bias": false, "attn_logit_softcapping": 50.0,
       "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 144, "sliding_window": 4096,
       "max_position_embeddings": 8192, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "bos_token_id": 2,
       "eos_token_id": 1})"},
    {"gemma-3-1b", R"({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "vocab_size": 262144,
       "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4,
       "num_key_value_heads": 1, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "attention_bias": false,
       "attn_logit_softcapping": null, "final_logit_softcapping": null, "query_pre_attn_scalar": 256,
       "sliding_window": 512, "sliding_window_pattern": 6, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06,
       "rope_theta": 1000000, "rope_local_base_freq": 10000, "rope_scaling": null, "bos_token_id": 2,
       "eos_token_id": 1})"},
    {"gemma-3-4b", R"({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "vocab_size": 262208,
       "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "num_attention_heads": 8,
       "num_key_value_heads": 4, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "attention_bias": false,
       "query_pre_attn_scalar": 256, "sliding_window": 1024, "sliding_window_pattern": 6,
       "max_position_embeddings": 131072, "rms_norm_eps": 1e-06, "rope_theta": 1000000, "rope_local_base_freq": 10000,
       "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "bos_token_id": 2, "eos_token_id": 1})"},
    {"gemma-3-12b", R"({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "vocab_size": 262208,
       "hidden_size": 3840, "intermediate_size": 15360, "num_hidden_layers": 48, "num_attention_heads": 16,
       "num_key_value_heads": 8, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "attention_bias": false,
       "query_pre_attn_scalar": 256, "sliding_window": 1024, "sliding_window_pattern": 6,
       "max_position_embeddings": 131072, "rms_norm_eps": 1e-06, "rope_theta": 1000000, "rope_local_base_freq": 10000,
       "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "bos_token_id": 2, "eos_token_id": 1})"},
    {"gemma-3-27b", R"({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "vocab_size": 262208,
       "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62, "num_attention_heads": 32,
       "num_key_value_heads": 16, "head_dim": 128, "hidden_activation": "gelu_pytorch_tanh", "attention_bias": false,
       "query_pre_attn_scalar": 168, "sliding_window": 1024, "sliding_window_pattern": 6,
       "max_position_embeddings": 131072, "rms_norm_eps": 1e-06, "rope_theta": 1000000, "rope_local_base_freq": 10000,
       "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "bos_token_id": 2, "eos_token_id": 1})"},
    {"phi-3-mini", R"({"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "vocab_size": 32064,
       "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32,
       "num_key_value_heads": 32, "hidden_act": "silu", "attention_bias": false, "sliding_window": 2047,
       "original_max_position_embeddings": 4096, "max_position_embeddings": 4096, "rms_norm_eps": 1e-05,
       "tie_word_embeddings": false, "rope_theta": 10000.0, "rope_scaling": null, "bos_token_id": 1,
       "eos_token_id": 32000})"},
    {"phi-4", R"({"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "vocab_size": 100352,
       "hidden_size": 5120, "intermediate_size": 17920, "num_hidden_layers": 40, "num_attention_heads": 40,
       "num_key_value_heads": 10, "hidden_act": "silu", "attention_bias": false, "sliding_window": null,
       "original_max_position_embeddings": 16384, "max_position_embeddings": 16384, "rms_norm_eps": 1e-05,
       "tie_word_embeddings": false, "rope_theta": 250000, "rope_scaling": null, "bos_token_id": 100257,
       "eos_token_id": 100265})"},
    {"phi-4-mini", R"({"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "vocab_size": 200064,
       "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 24,
       "num_key_value_heads": 8, "hidden_act": "silu", "attention_bias": false, "sliding_window": 262144,
       "original_max_position_embeddings": 4096, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05,
       "tie_word_embeddings": true, "partial_rotary_factor": 0.75, "rope_theta": 10000.0,
       "rope_scaling": {"type": "longrope", "short_factor": [
         1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0,
         1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0,
         1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]},
       "bos_token_id": 199999, "eos_token_id": 199999})"},
};

}  // namespace

const std::vector<std::string>& shape_names() {
  static const std::vector<std::string> names = names_of(kPublished);
  return names;
}

void expect_shape(const std::string& name) {
  if (name.find('/') != std::string::npos || std::ranges::find(shape_names(), name) != shape_names().end()) return;
  throw Error("unknown shape '" + name + "'" + suggestion(name, shape_names()) + "; known: " + listed(shape_names()) +
              ", or the path of a directory with a config.json");
}

ModelConfig published_shape(const std::string& name) {
  expect_shape(name);
  for (const Published& p : kPublished)
    if (name == p.name) return ModelConfig::parse(p.config, "the published shape " + name);
  throw Error("the shape '" + name + "' is a directory, not a published name");
}

}  // namespace foretoken
