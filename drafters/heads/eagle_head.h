// The residual stream of a draft head of the EAGLE family. This module must not know trees, caches or files.
#pragma once
#include <memory>
#include <vector>

#include "drafters/heads/eagle_files.h"
#include "drafters/heads/state_head.h"
#include "framework/model/decoder_layer.h"

namespace foretoken {

class EagleHead : public StateHead {
 public:
  // `ends`: of the target, which must outlive the head. `target`: its vocabulary and the type of its cache are the
  // head's. `dtype`: of the weights, as of TransformerOptions. A head for another target is an Error.
  EagleHead(Backend& backend, const EagleFiles& files, const Ends& ends, const ModelInfo& target,
            const std::string& dtype);

 private:
  Tensor stream(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) const override;
  void load_states(const WeightLoader& load);
  Tensor of_states(Backend& backend, const Tensor& inputs) const;
  Tensor first_input(Backend& backend, const Tensor& embedded, const Tensor& inputs, Tensor& qkv) const;

  EagleForm form_;
  Tensor embedding_norm_, state_norm_;  // f32 [width]; absent in EAGLE-1
  std::vector<Tensor> fc_norms_;        // f32 [target_width] of each state, or one of all
  std::vector<Weight> fc_;              // [width, input] of each input, which are added up
  Products of_embedding_, of_state_;  // q, k and v of the first layer, which are added up; EAGLE-1: of the state alone
  std::vector<DecoderLayer> layers_;
};

}  // namespace foretoken
