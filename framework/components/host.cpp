#include "framework/components/host.h"

#include "kernels/error.h"

namespace foretoken {

std::shared_ptr<Model> Host::load(const ModelChoice& choice, const std::string& dtype) const {
  if (!load_) throw Error("this engine was given no way to load the model '" + choice.text() + "'");
  auto model = load_(choice, dtype);
  const ModelInfo& m = model->info();
  if (m.vocab != target_.vocab || m.vocabulary != target_.vocabulary)
    throw Error("the draft model " + m.name + " has another vocabulary (" + std::to_string(m.vocab) +
                " tokens) than the target " + target_.name + " (" + std::to_string(target_.vocab) +
                " tokens): token ids would not mean the same; use a draft model with the target's tokenizer");
  return model;
}

std::shared_ptr<CachedModel> Host::cache(std::shared_ptr<Model> model) {
  return caches_.emplace_back(std::make_shared<CachedModel>(backend_, std::move(model), pool_, reuse_prefixes_));
}

}  // namespace foretoken
