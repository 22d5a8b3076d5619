// The drafter "private", with the option "model" of draft_model: its model is fed trees that the engine does not see.
#pragma once
#include <gtest/gtest.h>

#include "experiments/conformance/scenario.h"
#include "tests/support/states.h"

namespace foretoken::test {

using namespace conformance;

// Drafts by `inner` and returns copies of its trees, as a drafter that proposes only a part of its tree would: the
// engine does not see the tree that its model was fed.
class PrivateTrees : public Drafter {
 public:
  PrivateTrees(std::unique_ptr<Drafter> inner, Backend& backend) : inner_(std::move(inner)), backend_(backend) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> copies;
    own_ = inner_->draft(requests);
    for (std::size_t i = 0; i < own_.size(); ++i) {
      const DraftTree& own = own_[i];
      DraftTree& copy = copies.emplace_back(DraftTree::rooted(backend_, requests[i].sequence->last(), own.nodes - 1));
      for (int n = 1; n < own.nodes; ++n) {
        backend_.copy(own.tokens.rows(n, 1), copy.tokens.rows(n, 1));
        copy.grow(own.parents.data<std::int32_t>()[n], Drawn(own.q.drawn.data<std::uint8_t>()[n]));
      }
      copy.q.distributions = own.q.distributions;
    }
    return copies;
  }
  // By now its own trees have the drawn tokens, if a model was fed them.
  void observe(std::span<const Outcome>) override {
    for (const DraftTree& t : own_)
      for (int n = 1; n + 1 < t.nodes; ++n) EXPECT_GE(t.known.data<Token>()[n], 0) << "node " << n;
  }
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }

 private:
  std::unique_ptr<Drafter> inner_;
  Backend& backend_;
  std::vector<DraftTree> own_;
};

inline Registries with_private_trees() {
  Registries r = all_registries();
  r.drafters.add("private", {"",
                             "",
                             {{"model", "model", nullptr, ""}},
                             [inner = all_registries()](const nlohmann::json& o, Host& h) {
                               return std::make_unique<PrivateTrees>(
                                   inner.drafters.make({{"name", "draft_model"}, {"model", o.at("model")}}, h),
                                   h.backend());
                             },
                             states(Needs{.proposes = {Drawn::chain}})});
  return r;
}

}  // namespace foretoken::test
