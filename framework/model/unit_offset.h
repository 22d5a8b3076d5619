// Gains of norms that a checkpoint stores less 1 (Gemma, MTP modules of Qwen3-Next). This module must not know which
// checkpoints do.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "framework/model/tensor_source.h"

namespace foretoken {

// Adds 1 to the gains of norms, the vectors "...norm.weight": in f32, as Transformers does.
class UnitOffset : public TensorSource {
 public:
  explicit UnitOffset(std::shared_ptr<const TensorSource> stored) : stored_(std::move(stored)) {}
  // `stored` must outlive it.
  explicit UnitOffset(const TensorSource& stored) : stored_(std::shared_ptr<const TensorSource>(), &stored) {}

  Tensor tensor(const std::string& name, const Shape& expected) const override;
  Weight matrix(const std::string& module, const Shape& expected) const override {
    return stored_->matrix(module, expected);
  }
  std::vector<const WeightFormat*> formats() const override { return stored_->formats(); }
  DType scales() const override { return stored_->scales(); }
  std::vector<std::string> names() const override { return stored_->names(); }
  std::string where() const override { return stored_->where(); }

 private:
  std::shared_ptr<const TensorSource> stored_;
};

}  // namespace foretoken
