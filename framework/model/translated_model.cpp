#include "framework/model/translated_model.h"

namespace foretoken {

ModelInfo translated_info(const ModelInfo& target, ModelInfo own) {
  own.vocab = target.vocab, own.vocabulary = target.vocabulary, own.stop_tokens = target.stop_tokens;
  return own;
}

TranslatedModel::TranslatedModel(Backend& backend, std::shared_ptr<Model> model,
                                 std::shared_ptr<const VocabularyMap> map, const ModelInfo& target)
    : model_(std::move(model)),
      map_(std::move(map)),
      info_(translated_info(target, model_->info())),
      own_ids_(backend.upload(Tensor::host_copy<Token>(map_->own_ids(), DType::i32))),
      target_ids_(backend.upload(Tensor::host_copy<Token>(map_->target_ids(), DType::i32))) {}

Output TranslatedModel::forward(Backend& b, const Rows& rows, std::span<const KvLayer> kv) {
  Rows own = rows;
  own.tokens = b.translate(rows.tokens, own_ids_), own.logits = {};
  Output out = model_->forward(b, own, kv);
  if (!out.logits) return out;
  const Tensor all = rows.logits ? rows.logits : b.allocate({out.logits.dim(0), info_.vocab}, DType::f32);
  b.spread(out.logits, target_ids_, all);
  out.logits = all;
  return out;
}

}  // namespace foretoken
