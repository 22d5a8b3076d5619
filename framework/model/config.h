// The contents of a Hugging Face config.json of the Llama family (Llama, Mistral, Qwen2, Qwen3). This module must not
// know devices, checkpoints or caches.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace foretoken {

class Quantization;

struct RopeScaling {
  enum class Kind { none, linear, llama3, divisors };
  Kind kind = Kind::none;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int original_positions = 0;
  std::vector<float> divisors;  // [head_size / 2] of the frequencies: a GGUF file stores the effect of "llama3"
};

// The small model in an inflated one (inflation.h). A head that was trained for it counts its layers and its tokens.
struct SmallModel {
  int vocab = 0, width = 0;
  int layers = 0;               // the first ones of the inflated model: state k of the one is state k of the other
  int constants = 0;            // features at the end of the inflated residual stream that keep tokens from being drawn
  bool small_constants = true;  // no norm notices them
};

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"
  int vocab = 0;             // rows of the embedding
  int width = 0;             // hidden_size
  int layers = 0;
  int prediction_layers = 0;  // num_nextn_predict_layers: after the others in a checkpoint, never computed
  int heads = 0, kv_heads = 0, head_size = 0;
  int ffn = 0;        // intermediate_size; 0, in a layer of a head alone: it has no feed-forward sublayer
  int positions = 0;  // max_position_embeddings: the longest sequence
  double norm_epsilon = 1e-5;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool tied_head = false;  // tie_word_embeddings
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool head_bias = false;   // not in any config.json: of rows that a checkpoint lacks (head_rows.h)
  bool head_norms = false;  // RMSNorm of every head of q and k before the rotation (Qwen3)
  int window = 0;           // sliding_window: a row attends to so many positions, itself included; 0: all
  std::vector<int> eos;     // eos_token_id, one or several; generation_config.json's where that file has them
  std::optional<int> bos;
  std::optional<int> mask;          // pard_token: stands for tokens that are not known (PARD, arXiv 2504.18583)
  std::optional<SmallModel> small;  // not in any config.json: of an inflated model
  std::shared_ptr<const Quantization> quantization;  // quantization_config; absent: matrices are dense

  // Reads DIR/config.json. Anything that the project does not implement (another architecture or activation, windows of
  // some layers only, unknown rope types or ways to quantize) is an Error that names the key and its value.
  static ModelConfig load(const std::filesystem::path& directory);
  // The same from the text of a config.json; `where` names it in messages.
  static ModelConfig parse(std::string_view text, const std::string& where);
  // Frequencies of the rotary embedding, f32 [head_size / 2], scaled by rope_scaling.
  std::vector<float> rope_frequencies() const;
};

}  // namespace foretoken
