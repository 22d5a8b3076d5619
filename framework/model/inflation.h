// A trained small model embedded in a large shape so that it computes the same function: the acceptance rate of the
// small model at the cost of the large one. Every byte of the large shape is read and every operation done. This module
// must not know devices, nor where the small model's weights come from.
//
// width       The residual stream is the small one's, then zeros. A norm's mean square is multiplied by small/large, so
//             gains are multiplied by sqrt(small/large) and epsilon by small/large. Weights that are multiplied by the
//             zeros are random.
// heads       Pair j of a small head is pair j * large/small of a large one, which has the same frequency. The other
//             pairs of a query are zero, those of a key random. Attention divides by sqrt(head size), so the query's
//             weights are multiplied by sqrt(large/small). (In bf16 that is one more rounding where the ratio is no
//             power of four.) Queries keep their group: a key-value head with more queries than a large group holds is
//             repeated. Other heads are random, and the output projection ignores them.
// head norms  Both models have them or neither. The other pairs of a key are zero too. The gains of queries stay, those
//             of keys are multiplied by sqrt(small/large). The norms of heads have the epsilon of the others, so q and
//             k are multiplied by a factor before them that restores its share: a power of two in bf16, which is then
//             off by at most a factor of two.
// biases      Both models have them or neither; other ones are zero.
// ffn         Other hidden units are random, and the down projection ignores them.
// layers      The small model's are the first. The others are random, but add nothing: their output and down
//             projections are zero. So state k of the small model is state k of the large one, and what is trained for
//             the small one names layers by its numbers, not by their share of the depth (SmallModel).
// vocabulary  Tokens that the small model lacks must never be drawn, though the head computes their logits. A linear
//             head of features that are zero cannot give a very low logit, so the last two features of the residual
//             stream are a constant c in every row. No layer reads them (gain 0) or writes them, and 2 c^2 is
//             subtracted from the epsilon of every norm, which compensates exactly for their share of the mean square.
//             The final norm gives them the gains +g and -g. A token with the weights (-m, m) there gets the logit
//             -2 m g c / rms, far below every other. A token with equal weights gets 0 from them: (c, c) where the
//             embedding is the head, zeros where it is not. So model, distribution and verifiers need not know about
//             it. Where the embedding is the head, c is as large as its numbers (c^2 = epsilon small / 4), since
//             rounded weights would lose a smaller one. Else it is so small that no norm notices it: draft heads make
//             streams of their own of the target's, some with the constants and some without. The state behind the last
//             norm (kNormed) is without them.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/model/layer_inflation.h"

namespace foretoken {

class InflatedWeights : public TensorSource {
 public:
  // Where inflated_config refuses, or the small model has tensors that its configuration does not use: an Error that
  // names both (`small_name`, `shape_name`) and the obstacle. `wide`: in f32 whatever the small model has, for a
  // transformer that computes in f32: no weight is rounded once more. `between`: as of RandomWeights.
  InflatedWeights(std::shared_ptr<const TensorSource> small, const ModelConfig& small_config, const ModelConfig& shape,
                  const std::string& small_name, const std::string& shape_name, bool wide = false,
                  std::function<void()> between = {});

  // The large model's: sizes of the shape; rotation, positions and ends of sequence of the small model.
  const ModelConfig& config() const { return large_; }
  // Matrices in bf16 where the small model has bf16 and `wide` is false, else f32; gains of norms in f32.
  Tensor tensor(const std::string& name, const Shape& expected) const override;
  std::vector<std::string> names() const override;
  std::string where() const override { return small_tensors_->where() + " (inflated)"; }

 private:
  Tensor embedding(const std::string& name, const Shape& expected, const std::string& small_name, float constant) const;

  std::shared_ptr<const TensorSource> small_tensors_;
  ModelConfig small_, large_;
  float constant_ = 0;  // c; 0 where both vocabularies have one size
  std::unique_ptr<LayerInflation> layers_;
};

}  // namespace foretoken
