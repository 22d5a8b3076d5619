// Draft lengths by request: a length policy around another one, which cuts the budgets of requests that ask for shorter
// drafts. Such a cut depends on the request alone, so outputs keep their distribution. This module must not know
// requests of a network.
#pragma once
#include <memory>
#include <mutex>
#include <unordered_map>

#include "framework/components/registry.h"

namespace foretoken::serve {

class DraftCaps {
 public:
  // Levels of the sequence's drafts from its next round on, at most; 0: none. Until it ends.
  void set(SequenceId id, int levels);
  void forget(SequenceId id);
  // The budget as the sequence may use it.
  Budget cut(SequenceId id, Budget budget) const;
  std::size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<SequenceId, int> levels_;
};

// The same components, whose policies ask `caps`.
Registries with_caps(const Registries& registries, const std::shared_ptr<DraftCaps>& caps);

}  // namespace foretoken::serve
