// What drafters' models were fed need not be the trees that drafters return: a drafter may keep a larger tree of its
// own. Where a device drew the tokens of such a tree, the host learns them here, once a step, so that caches keep the
// path that a sequence took instead of computing it again. It must not know drafters.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "framework/cache/cached_model.h"
#include "framework/engine/scheduler.h"
#include "kernels/staging.h"

namespace foretoken {

class DraftReadback {
 public:
  explicit DraftReadback(Backend& backend) : backend_(backend), addresses_(backend), tokens_(backend) {}

  // Asks the device for the tokens that `caches` were fed in this step, but for those of the returned `trees`, which
  // are read with the verdicts.
  void ask(const Plan& plan, std::span<const DraftTree> trees, std::span<const std::shared_ptr<CachedModel>> caches);
  // Puts them where caches look for them. After the next synchronize().
  void learn();

 private:
  Backend& backend_;
  Staging addresses_, tokens_;
  std::vector<KvCache::Unread> unread_;
  Tensor read_;  // i32, one for each
};

}  // namespace foretoken
