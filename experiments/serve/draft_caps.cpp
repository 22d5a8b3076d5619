#include "experiments/serve/draft_caps.h"

#include <algorithm>

namespace foretoken::serve {
namespace {

class CappedPolicy : public LengthPolicy {
 public:
  CappedPolicy(std::unique_ptr<LengthPolicy> inner, std::shared_ptr<DraftCaps> caps)
      : inner_(std::move(inner)), caps_(std::move(caps)) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> all = inner_->budgets(past);
    for (std::size_t i = 0; i < std::min(all.size(), past.size()); ++i) all[i] = caps_->cut(past[i].id, all[i]);
    return all;
  }
  void observe(const StepReport& report) override { inner_->observe(report); }
  void forget(const Sequence& sequence) override {
    caps_->forget(sequence.id);
    inner_->forget(sequence);
  }
  std::string notice() const override { return inner_->notice(); }

 private:
  std::unique_ptr<LengthPolicy> inner_;
  std::shared_ptr<DraftCaps> caps_;
};

}  // namespace

void DraftCaps::set(SequenceId id, int levels) {
  const std::lock_guard lock(mutex_);
  levels_[id] = levels;
}

void DraftCaps::forget(SequenceId id) {
  const std::lock_guard lock(mutex_);
  levels_.erase(id);
}

Budget DraftCaps::cut(SequenceId id, Budget budget) const {
  const std::lock_guard lock(mutex_);
  const auto found = levels_.find(id);
  if (found == levels_.end() || found->second >= budget.depth) return budget;
  const bool chain = budget.nodes == budget.depth + 1;
  budget.depth = found->second;
  if (chain || budget.depth == 0) budget.nodes = budget.depth + 1;
  return budget;
}

std::size_t DraftCaps::size() const {
  const std::lock_guard lock(mutex_);
  return levels_.size();
}

Registries with_caps(const Registries& registries, const std::shared_ptr<DraftCaps>& caps) {
  Registries all(registries);
  for (const std::string& name : registries.policies.names()) {
    Entry<LengthPolicy> entry = registries.policies.entries().at(name);
    entry.make = [caps, make = entry.make](const nlohmann::json& options, Host& host) -> std::unique_ptr<LengthPolicy> {
      auto inner = make(options, host);
      if (!inner) return nullptr;  // the registry says whose fault it is
      return std::make_unique<CappedPolicy>(std::move(inner), caps);
    };
    all.policies.replace(name, std::move(entry));
  }
  return all;
}

}  // namespace foretoken::serve
