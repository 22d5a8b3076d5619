// Kangaroo's adapter of an early exit (Liu et al. 2024, arXiv 2404.18911): one attention sublayer and a norm on the
// residual stream behind the target's first layers, then the target's head. A row is a token's own: that of position i
// reads the state of position i. This module must not know trees or caches.
#pragma once
#include <optional>

#include <nlohmann/json.hpp>

#include "drafters/heads/inflated_head.h"
#include "drafters/heads/state_head.h"
#include "framework/model/decoder_layer.h"

namespace foretoken {

// "layers.0.input_layernorm.weight", "layers.0.self_attn.q_proj.weight" and so on, "norm.weight".
struct KangarooFiles : HeadFiles {
  ModelConfig layer = {};        // of its layer, which has no feed-forward sublayer
  std::optional<Tap> exit = {};  // "exit_layer": the state that it was trained on; published ones do not say it
};

// `head`: a directory in its authors' layout, or {"random": SHAPE, "seed": 1}, as of open_eagle. What is no such
// adapter is an Error.
KangarooFiles open_kangaroo(const nlohmann::json& head, const ModelInfo& target);

class KangarooHead : public StateHead {
 public:
  // As EagleHead.
  KangarooHead(Backend& backend, const KangarooFiles& files, const Ends& ends, const ModelInfo& target,
               const std::string& dtype);
  bool features() const override { return false; }
  bool reads_states() const override { return true; }

 private:
  Tensor stream(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) const override;

  std::vector<DecoderLayer> layers_;  // one
};

}  // namespace foretoken
