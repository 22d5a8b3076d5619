// A model of another vocabulary than the target's, as one of the target's: it reads the ids of a VocabularyMap, and its
// logits are those of the target's vocabulary, minus infinity where it lacks a token. So penalties, warps and draws act
// on the tokens that both have, and q is what the model gives them, renormalized. This module must not know drafters.
#pragma once
#include <memory>
#include <utility>

#include "framework/model/model.h"
#include "framework/model/vocabulary_map.h"

namespace foretoken {

// What the model says of itself then. `own`: of the model.
ModelInfo translated_info(const ModelInfo& target, ModelInfo own);

class TranslatedModel : public Model {
 public:
  TranslatedModel(Backend& backend, std::shared_ptr<Model> model, std::shared_ptr<const VocabularyMap> map,
                  const ModelInfo& target);
  const ModelInfo& info() const override { return info_; }
  Output forward(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) override;
  bool replays() const override { return model_->replays(); }
  std::int64_t read_bytes(bool inputs) const override { return model_->read_bytes(inputs); }
  const VocabularyMap* vocabulary_map() const override { return map_.get(); }

 private:
  std::shared_ptr<Model> model_;
  std::shared_ptr<const VocabularyMap> map_;
  ModelInfo info_;
  Tensor own_ids_, target_ids_;  // i32, as of the map
};

}  // namespace foretoken
