// Reads back tokens that a device drew for drafters' private trees, once a step, or once a round of an inner drafter. A
// drafter may feed its model a larger tree than it returns. With these tokens its cache can keep the rows of the
// accepted path instead of computing them again. This module must not know drafters.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "framework/cache/cached_model.h"
#include "framework/decode/token_readback.h"

namespace foretoken {

class DraftReadback {
 public:
  explicit DraftReadback(Backend& backend) : tokens_(backend) {}

  // Starts the copy of the drawn tokens that `caches` were fed, except those of the returned `trees`, one for each
  // sequence, which are read with the verdicts.
  void fetch(std::span<const SequenceId> sequences, std::span<const DraftTree> trees,
             std::span<const std::shared_ptr<CachedModel>> caches);
  // Stores them in the memory from which the caches read their tokens. After the next synchronize().
  void store();

 private:
  TokenReadback tokens_;
  std::vector<KvCache::Unread> unread_;
};

}  // namespace foretoken
