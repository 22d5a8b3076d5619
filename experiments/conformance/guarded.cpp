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
  GuardedDrafter(std::unique_ptr<Drafter> inner, std::vector<Drawn> proposes, std::string who, int vocab)
      : inner_(std::move(inner)), proposes_(std::move(proposes)), who_(std::move(who)), vocab_(vocab) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
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
      expect_tree(tree, {r.sequence->last(), r.budget, vocab_, kAll, proposes_}, who_);
      expect_distributions(tree, vocab_, who_);
    } catch (const Error& e) {
      throw Error(for_sequence(r.sequence->id, e.what()));
    }
  }

  std::unique_ptr<Drafter> inner_;
  std::vector<Drawn> proposes_;
  std::string who_;
  int vocab_;
};

template <class T> void name_all(Registry<T>& registry) {
  const auto entries = registry.entries();
  for (const auto& [name, entry] : entries)
    registry.replace(name, naming_faults(entry, {"the " + registry.what() + " '" + name + "'", true}));
}

}  // namespace

Registries guarded(Registries registries) {
  name_all(registries.drafters), name_all(registries.policies), name_all(registries.verifiers);
  const auto named = std::make_shared<const Registries>(registries);
  for (const auto& [name, of_name] : named->drafters.entries()) {
    Entry<Drafter> entry = of_name;
    entry.make = [named, who = "the drafter '" + name + "'"](const nlohmann::json& options, Host& host) {
      const Needs needs = named->drafters.traits(options, host.target());
      return std::make_unique<GuardedDrafter>(named->drafters.make(options, host), needs.proposes, who,
                                              host.target().vocab);
    };
    registries.drafters.replace(name, entry);
  }
  return registries;
}

}  // namespace foretoken::conformance
