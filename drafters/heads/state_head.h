// What draft heads on states of the target have in common: they embed tokens, make a residual stream of them and of the
// states, and turn it into logits of the target's vocabulary and features for the next level. This module must not know
// how the stream is made.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "framework/model/config.h"
#include "framework/model/decoder_layer.h"
#include "framework/model/model.h"
#include "framework/model/weight_loader.h"

namespace foretoken {

// What a head's forwards read of its own weights, once all are loaded, in the place of what `info` has of the target.
void count_weights(ModelInfo& info, const WeightLoader& load, const ModelConfig& layer,
                   std::span<const DecoderLayer> layers);

class StateHead : public Model {
 public:
  const ModelInfo& info() const override { return info_; }
  Output forward(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) final;
  bool replays() const override { return true; }
  bool features() const override { return true; }
  // The target's head among them.
  std::int64_t read_bytes(bool inputs) const override;

 protected:
  // `layer`: of its decoder layers. `ends`: of the target, which must outlive the head; `target`: whose vocabulary and
  // type of cache the head has.
  StateHead(const ModelConfig& layer, const Ends& ends, const ModelInfo& target, std::string name);
  // rows.inputs f32 [rows, states], which may be changed -> f32 [rows, width]; absent where no row is wanted.
  virtual Tensor stream(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) const = 0;
  // Of the rows' tokens: f32 [rows, width].
  Tensor embedded(Backend& backend, const Rows& rows) const {
    return backend.embed(own_embedding_ ? embedding_ : ends_.embedding, rows.tokens);
  }
  // Only the first `rows` rows of the matrix of logits are ever drawn; 0: all. To be called when it is loaded.
  void draw_only(Backend& backend, int rows);
  // An Error, which names `who`, where its width is not the target's.
  static void expect_width(int width, const ModelInfo& target, const std::string& who);
  // An Error where rows have no states of the target.
  void expect_states(const Rows& rows) const;

  ModelInfo info_;
  const Ends& ends_;
  float epsilon_;
  Weight embedding_, head_;  // absent: the target's
  bool own_embedding_ = false;
  bool shares_head_ = false;  // head_ is the target's with a bias
  Tensor ids_;                // i32 [draft vocabulary]: tokens of the target; absent where it is the same
  Tensor norm_;               // f32 [width], before the head; absent: none
  bool norm_output_ = false;  // features are behind that norm
};

}  // namespace foretoken
