// The contents of a Hugging Face config.json of the Llama family (Llama, Mistral, Qwen2, Qwen3, Gemma, Phi) and of its
// mixtures of experts (Mixtral, Qwen2-MoE, Qwen3-MoE). This module must not know devices, checkpoints or caches.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace foretoken {

class Quantization;
struct Rank;

struct RopeScaling {
  enum class Kind { none, linear, llama3, divisors, longrope };
  Kind kind = Kind::none;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int original_positions = 0;
  // Of the frequencies: a GGUF file stores the effect of "llama3", and "longrope" has short_factor.
  std::vector<float> divisors;
  double attention_factor = 1;  // of cosines and sines (longrope)
};

// Of gated products: act(gate x) * up x.
enum class Activation : std::uint8_t { silu, gelu };

// The small model in an inflated one (inflation.h). A head that was trained for it counts its layers and its tokens.
struct SmallModel {
  int vocab = 0, width = 0;
  int layers = 0;               // the first ones of the inflated model: state k of the one is state k of the other
  int constants = 0;            // features at the end of the inflated residual stream that keep tokens from being drawn
  bool small_constants = true;  // no norm notices them
};

// A feed-forward of which each row uses some experts (Shazeer et al. 2017, arXiv 1701.06538): a gate [experts, width]
// gives the row a logit for each, and those of the greatest share of their softmax are used.
struct MixtureConfig {
  static constexpr int kMost = 1 << 18;  // of the experts of all layers together

  int experts = 0, used = 0;  // num_experts (num_local_experts); num_experts_per_tok
  int width = 0;              // hidden units of an expert
  // Of one more expert, which every row uses, times the sigmoid of a gate of its own (Qwen2-MoE); 0: there is none.
  int shared_width = 0;
  bool renormalized = true;  // the shares of the used experts are divided by their sum
  int first = 0, held = 0;   // not in any config.json: the experts of a rank (division.h); held 0: all
  int held_experts() const { return held > 0 ? held : experts; }
  double used_share() const { return double(used) / experts; }  // of the experts, by one row
  // Names of the module in a layer and of an expert's matrices in a checkpoint.
  std::string module = "mlp", gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::vector<int> dense_layers = {};  // ascending; their feed-forward is that of ModelConfig::ffn
  // The names of Mixtral's checkpoints.
  void name_as_mixtral() {
    module = "block_sparse_moe";
    gate = "w1";
    up = "w3";
    down = "w2";
  }
};

// That ModelConfig reads, as config.json names them: "LlamaForCausalLM" and so on.
const std::vector<std::string>& architectures();

struct ModelConfig {
  std::string architecture;  // one of architectures()
  int vocab = 0;             // rows of the embedding
  int width = 0;             // hidden_size
  int layers = 0;
  int prediction_layers = 0;  // num_nextn_predict_layers: after the others in a checkpoint, never computed
  int heads = 0, kv_heads = 0, head_size = 0;
  int ffn = 0;  // intermediate_size; 0, in a layer of a head alone: it has no feed-forward sublayer
  std::optional<MixtureConfig> mixture;  // of all layers but its dense ones; absent: all are dense
  int positions = 0;                     // max_position_embeddings: the longest sequence
  double norm_epsilon = 1e-5;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool tied_head = false;  // tie_word_embeddings
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool head_bias = false;          // not in any config.json: of rows that a checkpoint lacks (head_rows.h)
  bool head_norms = false;         // RMSNorm of every head of q and k before the rotation (Qwen3)
  int window = 0;                  // sliding_window: a row attends to so many positions, itself included; 0: all
  std::vector<int> global_layers;  // ascending; they attend to all positions, though others have the window
  double local_theta = 0;          // rope_theta of layers with the window, not scaled (Gemma 3); 0: that of all
  int rotary = 0;                  // numbers of a head that are rotated, the first ones; 0: all
  Activation activation = Activation::silu;
  double query_scalar = 0;        // scores are divided by its root; 0: by that of head_size
  double attention_softcap = 0;   // attn_logit_softcapping, of scores; 0: none
  double logit_softcap = 0;       // final_logit_softcapping; 0: none
  bool scaled_embedding = false;  // embeddings are multiplied by the root of `width`
  bool post_norms = false;        // what a sublayer adds to the residual stream goes through a norm (Gemma 2)
  bool gains_less_one = false;    // a checkpoint stores the gains of norms less 1
  bool fused = false;             // it has q, k and v as one matrix, qkv_proj, and the gate as gate_up_proj
  std::vector<int> eos;           // eos_token_id, one or several; generation_config.json's where that file has them
  std::optional<int> bos;
  std::optional<int> mask;           // pard_token: stands for tokens that are not known (PARD, arXiv 2504.18583)
  std::optional<SmallModel> small;   // not in any config.json: of an inflated model
  std::shared_ptr<const Rank> rank;  // not in any config.json: of a model divided among ranks (division.h)
  std::shared_ptr<const Quantization> quantization;  // quantization_config; absent: matrices are dense

  // Reads DIR/config.json. Anything that the project does not implement (another architecture or activation, unknown
  // rope types or ways to quantize) is an Error that names the key and its value.
  static ModelConfig load(const std::filesystem::path& directory);
  // The same from the text of a config.json; `where` names it in messages.
  static ModelConfig parse(std::string_view text, const std::string& where);
  // The same, of which every layer is as layer `l` is: without the mixture where that is dense, without the window
  // where it attends to all positions.
  ModelConfig of_layer(int l) const;
  // Frequencies of the rotary embedding, f32 [rotary / 2], scaled by rope_scaling.
  std::vector<float> rope_frequencies() const;
};

}  // namespace foretoken
