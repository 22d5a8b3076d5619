// What inflated models and inflated draft heads (inflation.h) have in common: their configuration, the places of a
// small matrix in a large one, gains of norms, and the tensors of decoder layers. This module must not know what stands
// before or behind the layers.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/model/config.h"
#include "framework/model/random_weights.h"
#include "framework/model/tensor_source.h"

namespace foretoken {

// For every row or column of a large matrix, that of the small one, or -1.
using Places = std::vector<std::int32_t>;
// The first `small` of each `large`, `blocks` times side by side.
Places first_places(int small, int large, int blocks = 1);

// Sizes of the shape; kinds of tensors, rotation, positions and ends of sequence of the small model; epsilon for a
// stream whose constant features no norm notices. Where the shape cannot hold the small model, or one of them has
// biases or norms of heads and the other has not, or a piece that no inflated model has: an Error that names both ("the
// model tiny", "llama-3.1-8b") and the obstacle.
ModelConfig inflated_config(const ModelConfig& small, const ModelConfig& shape, const std::string& small_name,
                            const std::string& shape_name);

class LayerInflation {
 public:
  // `large`: an inflated_config. `like`: a matrix of the small model, which has the type of all. `wide`, `between`: as
  // of InflatedWeights.
  LayerInflation(std::shared_ptr<const TensorSource> small_tensors, const ModelConfig& small, const ModelConfig& large,
                 const Tensor& like, bool wide, std::function<void()> between);

  const Places& width() const { return width_; }
  // The tensor PREFIX + "layers.3.self_attn.q_proj.weight", or "...q_proj.part1.weight" of one that is in parts. Layers
  // that the small model lacks add nothing. A tensor of another name is an Error.
  Tensor layer(const std::string& name, const Shape& expected) const;
  // Of a norm of the residual stream, or of several side by side. `constant`: of the constant features, + and -.
  Tensor gains(const std::string& name, const Shape& expected, float constant = 0) const;
  // A table `name` of tokens, whose first rows are those of the small table `from`; the others are random.
  Tensor table(const std::string& name, const std::string& from, const Shape& expected, const Places& rows,
               const Places& columns) const;
  // What adds to the stream: zeros beside the small matrix of this name.
  Tensor sum(const std::string& name, const Shape& expected, const Places& rows, const Places& columns) const;
  // The small vector of this name, times the factor; zeros beside it.
  Tensor vector(const std::string& name, const Shape& expected, const Places& places, float factor = 1) const;

 private:
  Tensor random(const std::string& name, const Shape& expected) const;
  Tensor projection(const std::string& name, const std::string& part, const Shape& expected) const;
  Tensor head_gains(const std::string& name, bool queries) const;
  void scatter(const std::string& from, const Places& rows, const Places& columns, float factor, Tensor to) const;

  std::shared_ptr<const TensorSource> small_tensors_;
  ModelConfig small_, large_;
  RandomWeights random_;
  DType type_;
  Places width_, ffn_, queries_, keys_, values_, outputs_;
  float query_factor_ = 1, key_factor_ = 1;
};

// Sets an element of an inflated matrix.
void set_element(const Tensor& to, std::int64_t row, std::int64_t column, float x);

}  // namespace foretoken
