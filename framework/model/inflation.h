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
// ffn         Other hidden units are random, and the down projection ignores them.
// layers      Other layers are random, but add nothing: their output and down projections are zero.
// vocabulary  Tokens that the small model lacks must never be drawn, though the head computes their logits. A linear
//             head of features that are zero cannot give a very low logit, so the last two features of the residual
//             stream are a constant c in every row. No layer reads them (gain 0) or writes them, and 2 c^2 is
//             subtracted from the epsilon of every norm, which compensates exactly for their share of the mean square
//             (c^2 = epsilon small / 4). The final norm gives them the gains +g and -g. A token with the weights (-m,
//             m) there gets the logit -2 m g c / rms, far below every other. A token with equal weights gets 0 from
//             them: (c, c) where the embedding is the head, zeros where it is not. So model, distribution and verifiers
//             need not know about it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/model/config.h"
#include "framework/model/random_weights.h"
#include "framework/model/tensor_source.h"

namespace foretoken {

class InflatedWeights : public TensorSource {
 public:
  // Where the shape cannot hold the small model, one of them has biases or norms of heads, or the small model has
  // tensors that its configuration does not use: an Error that names both
  // (`small_name`, `shape_name`) and the obstacle. `wide`: in f32 whatever the small model has, for a transformer
  // that computes in f32: no weight is rounded once more. `between`: as of RandomWeights.
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
  // For every row or column of the large matrix, that of the small one, or -1.
  using Indices = std::vector<std::int32_t>;

  Tensor part_of_a_layer(const std::string& name, const Shape& expected, const std::string& part) const;
  Tensor embedding(const std::string& name, const Shape& expected, const std::string& small_name, float constant) const;
  Tensor gains(const std::string& name, bool last) const;
  Tensor random(const std::string& name, const Shape& shape) const;
  void scatter(const std::string& name, const Indices& rows, const Indices& columns, float factor, Tensor to) const;
  Tensor small_matrix(const std::string& name, const Indices& rows, const Indices& columns) const;

  std::shared_ptr<const TensorSource> small_tensors_;
  ModelConfig small_, large_;
  RandomWeights random_;
  DType type_ = DType::f32;
  float constant_ = 0;  // c; 0 where both vocabularies have one size
  Indices width_, ffn_, queries_, keys_, values_, outputs_, tokens_;
};

}  // namespace foretoken
