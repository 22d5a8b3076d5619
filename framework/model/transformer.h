// One transformer for the Llama family, by configuration: Llama 2 and 3, Mistral (sliding window), Qwen2 (biases of q,
// k, v), Qwen3 (norms of the heads of q and k), Gemma 2 and 3 (windows of some layers, norms behind sublayers, caps of
// scores and logits), Phi-3 (fused matrices, heads that are rotated in part), OLMo 2 (norms behind sublayers alone) and
// SmolLM3 (layers that rotate nothing), those of them whose feed-forward is a mixture of experts (Mixtral, Qwen2-MoE,
// Qwen3-MoE, and gpt-oss, with sinks), and DeepSeek-V2 and V3 (attention on latents, experts by groups); grouped
// queries, tied or untied head. The forward is written in the order of execution. This module must not know sequences,
// drafters, or on which device it runs.
//   Touvron et al. 2023 (arXiv 2302.13971, 2307.09288); Llama 3: 2407.21783; Mistral: 2310.06825; Mixtral: 2401.04088;
//   Qwen2(-MoE): 2407.10671; Qwen3(-MoE): 2505.09388; Gemma 2: 2408.00118; Gemma 3: 2503.19786; Phi-3: 2404.14219;
//   OLMo 2: 2501.00656; gpt-oss: 2508.10925; DeepSeek-V2: 2405.04434; DeepSeek-V3: 2412.19437.
#pragma once
#include <filesystem>

#include "framework/model/checkpoint.h"
#include "framework/model/config.h"
#include "framework/model/decoder_layer.h"
#include "framework/model/model.h"
#include "framework/model/tensor_source.h"

namespace foretoken {

// Types of keys and values: "auto" (f32 on the reference backend, else bf16), "f32", "bf16", and codes of 8 bits with a
// scale for each token and head, "int8" and "fp8" (kernels/cache_codes.h).
const std::vector<std::string>& cache_types();

struct TransformerOptions {
  std::string dtype = "auto";  // of the weights: one of weight_types()
  // Of the head: one of weight_types(). "auto": as `dtype` where that is dense, else as stored, since a head is the
  // matrix that loses most by rounding (quantized checkpoints keep it too).
  std::string head_dtype = "auto";
  std::string kv_dtype = "auto";  // of keys and values: one of cache_types()
};

// The facts about a model of this configuration, without weight_bytes, which is known after loading only. An Error
// where its heads have a size that `kv_dtype` does not take.
ModelInfo model_info(const ModelConfig& config, const Backend& backend, std::string name, std::uint64_t vocabulary,
                     const std::string& kv_dtype = "auto");

class Transformer : public Model {
 public:
  // `vocabulary` is the fingerprint of the directory's tokenizer.
  Transformer(Backend& backend, const ModelConfig& config, const TensorSource& tensors, std::string name,
              std::uint64_t vocabulary, const TransformerOptions& options = {});

  const ModelInfo& info() const override { return info_; }
  const ModelConfig& config() const { return config_; }
  Output forward(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) override;
  bool replays() const override { return true; }
  const Ends* ends(Backend& backend) override;
  const Rank* rank() const override { return config_.rank.get(); }
  std::shared_ptr<Model> part(const std::shared_ptr<Model>& self, const LeftOut& left_out) override;

 private:
  class Part;
  // What runs of each layer.
  struct Sublayers {
    bool attention = true, feed_forward = true;
  };
  // Without `head` the stream of the wanted rows is their features (LeftOut::head).
  Output through(Backend& backend, const Rows& rows, std::span<const KvLayer> kv, std::span<const Sublayers> run,
                 bool head) const;

  ModelConfig config_;
  ModelInfo info_;
  Ends ends_;          // the embedding is the head where they are tied and quantized
  Tensor state_norm_;  // f32 [width]: of the tap kNormed
  std::vector<DecoderLayer> layers_;
  std::vector<Sublayers> all_;  // of every layer
};

}  // namespace foretoken
