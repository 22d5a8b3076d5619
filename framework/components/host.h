// What a drafter, policy or verifier may ask of the engine when it is made: the device, facts about the target, models
// (loaded once, shared), and caches over the engine's one page pool.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/cache/cached_model.h"
#include "framework/model/model_choice.h"

namespace foretoken {

class Host {
 public:
  using Load = std::function<std::shared_ptr<Model>(const ModelChoice& choice, const std::string& dtype)>;

  Host(Backend& backend, PagePool& pool, const ModelInfo& target, Load load, bool reuse_prefixes)
      : backend_(backend), pool_(pool), target_(target), load_(std::move(load)), reuse_prefixes_(reuse_prefixes) {}

  Backend& backend() const { return backend_; }
  const ModelInfo& target() const { return target_; }
  // A model of the target's vocabulary; another vocabulary is an Error.
  std::shared_ptr<Model> load(const ModelChoice& choice, const std::string& dtype) const;
  // A cache for it over the shared pool, owned by the engine's books (time in forwards is counted as drafting).
  std::shared_ptr<CachedModel> cache(std::shared_ptr<Model> model);
  std::span<const std::shared_ptr<CachedModel>> caches() const { return caches_; }

 private:
  Backend& backend_;
  PagePool& pool_;
  const ModelInfo& target_;
  Load load_;
  bool reuse_prefixes_;
  std::vector<std::shared_ptr<CachedModel>> caches_;
};

}  // namespace foretoken
