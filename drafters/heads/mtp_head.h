// A module for multi-token prediction that stands in its target's checkpoint, or in a file of its own: one whole
// decoder layer on a combination of each token's embedding and the target's last state of the position before
// (DeepSeek-V3, arXiv 2412.19437; MiMo, 2505.07608). This module must not know trees or caches.
#pragma once
#include <memory>

#include <nlohmann/json.hpp>

#include "drafters/heads/inflated_head.h"
#include "drafters/heads/state_head.h"
#include "framework/model/decoder_layer.h"

namespace foretoken {

// "fc.part0.weight" (left columns) and "fc.part1.weight", "embedding_norm.weight", "state_norm.weight",
// "layers.0.self_attn.q_proj.weight" and so on, "norm.weight".
struct MtpFiles : HeadFiles {
  ModelConfig layer = {};    // of its decoder layer
  bool state_first = false;  // the columns of the state are the left ones (MiMo)
};

// `head`: the directory of a checkpoint that has such a module, in MiMo's, Qwen's, DeepSeek's or GLM's names, or
// {"random": SHAPE, "seed": 1}, as of open_eagle, or one that is inflated. None there is an Error.
MtpFiles open_mtp(const nlohmann::json& head, const ModelInfo& target, bool wide = false);

class MtpHead : public StateHead {
 public:
  // As EagleHead.
  MtpHead(Backend& backend, const MtpFiles& files, const Ends& ends, const ModelInfo& target, const std::string& dtype);

 private:
  Tensor stream(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) const override;

  Tensor embedding_norm_, state_norm_;  // f32 [width]
  Weight of_embedding_, of_state_;      // [width, width], added up
  std::vector<DecoderLayer> layers_;    // one
};

}  // namespace foretoken
