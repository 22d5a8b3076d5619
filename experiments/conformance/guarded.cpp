#include "experiments/conformance/guarded.h"

#include "framework/components/host.h"
#include "framework/components/named_faults.h"
#include "framework/engine/failures.h"
#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

constexpr Drawn kAll[] = {Drawn::certain,   Drawn::chain, Drawn::independent, Drawn::without_replacement,
                          Drawn::marginals, Drawn::aside};

class GuardedDrafter : public Drafter {
 public:
  GuardedDrafter(std::unique_ptr<Drafter> inner, std::string who, int vocab)
      : inner_(std::move(inner)), who_(std::move(who)), vocab_(vocab) {}
  Needs needs() const override { return declared_ ? *declared_ : inner_->traits(); }
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    if (!proposes_) proposes_ = needs().proposes;
    std::vector<DraftTree> trees = inner_->draft(requests);
    if (trees.size() != requests.size())
      throw Error(who_ + " returned " + std::to_string(trees.size()) + " trees for " + std::to_string(requests.size()) +
                  " requests; Drafter::draft must return one tree for each");
    for (std::size_t i = 0; i < trees.size(); ++i) expect(trees[i], requests[i]);
    return trees;
  }
  void observe(std::span<const Outcome> outcomes) override { inner_->observe(outcomes); }
  void observe_step(const StepReport& report) override { inner_->observe_step(report); }
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }

 private:
  void expect(const DraftTree& tree, const DraftRequest& r) const {
    try {
      expect_tree(tree, {r.sequence->last(), r.budget, vocab_, kAll, *proposes_}, who_);
      expect_distributions(tree, vocab_, who_);
    } catch (const Error& e) {
      throw Error(for_sequence(r.sequence->id, e.what()));
    }
  }

  std::unique_ptr<Drafter> inner_;
  std::string who_;
  int vocab_;
  std::optional<std::vector<Drawn>> proposes_;
};

template <class T> void name_all(Registry<T>& registry) {
  const auto entries = registry.entries();
  for (const auto& [name, entry] : entries)
    registry.replace(name, naming_faults(entry, {"the " + registry.what() + " '" + name + "'", true}));
}

}  // namespace

Registries guarded(Registries registries) {
  name_all(registries.drafters), name_all(registries.policies), name_all(registries.verifiers);
  const auto drafters = registries.drafters.entries();
  for (const auto& [name, named] : drafters) {
    Entry<Drafter> entry = named;
    entry.make = [make = named.make, who = "the drafter '" + name + "'"](const nlohmann::json& options,
                                                                         Host& host) -> std::unique_ptr<Drafter> {
      auto made = make(options, host);
      return made ? std::make_unique<GuardedDrafter>(std::move(made), who, host.target().vocab) : nullptr;
    };
    registries.drafters.replace(name, entry);
  }
  return registries;
}

}  // namespace foretoken::conformance
