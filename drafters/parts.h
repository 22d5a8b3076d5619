// The inner drafters of one that is made of several, and what all such drafters have in common. This module must not
// know how a combination chooses.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "framework/components/host.h"
#include "framework/components/registry.h"

namespace foretoken {

class Parts {
 public:
  // `configs`: the value of the option drafters_option().
  Parts(Host& host, const nlohmann::json& configs);

  int count() const { return int(parts_.size()); }
  const Needs& needs(int k) const { return parts_[std::size_t(k)].needs; }
  const std::string& who(int k) const { return parts_[std::size_t(k)].who; }  // "the drafter 'ngram'"
  // Of the models of part k.
  std::span<const std::shared_ptr<CachedModel>> caches(int k) const { return parts_[std::size_t(k)].caches; }
  // The trees of part k, valid ones, one for each request. Its draws have a scope of their own.
  std::vector<DraftTree> draft(int k, std::span<const DraftRequest> requests);
  // The same with the requests' own draws.
  std::vector<DraftTree> draft_as_named(int k, std::span<const DraftRequest> requests);
  // The same for the requests of these numbers alone, into their places of `trees`.
  void draft(int k, std::span<const DraftRequest> requests, std::span<const int> chosen, std::span<DraftTree> trees);
  // The length of a tree of part k as far as no drawn token decides it, so that trees may be chosen by it: 0 for a bare
  // root, else its levels. A tree whose levels may follow from the tokens that were drawn for it (it has some, and the
  // budget asks for confidence, or the part waits for the device) has those of its budget, however long it became.
  int length(int k, const DraftRequest& r, const DraftTree& tree) const;

  // Bare roots for the requests whose pages did not suffice for the model of a part that was asked since the last call.
  // Another part's tree in its place would make the proposal depend on what other sequences hold.
  void bare_where_pages_lacked(std::span<const DraftRequest> requests, std::span<DraftTree> trees);
  // The request's tree will be `tree`, as part k drew it.
  void returns(const DraftRequest& r, int k, const DraftTree& tree) {
    returned_[r.sequence->id] = {k, tree.parents, tree.nodes};
  }
  // To the part that drew the tree, and to those that read trees of others (Needs::any_tree).
  void observe(std::span<const Outcome> outcomes);
  void observe_step(const StepReport& report);
  void forget(const Sequence& sequence);
  std::string notice() const;  // of all parts that have something to say

 private:
  struct Part {
    std::string who;  // "the drafter 'ngram'"
    Needs needs;
    std::unique_ptr<Drafter> drafter;
    std::vector<std::shared_ptr<CachedModel>> caches = {};  // of its models
  };
  struct Returned {
    int part;
    Tensor parents;  // its memory tells the tree from others
    int nodes;       // fewer are verified where it was bared
  };

  int vocab_;
  std::vector<Part> parts_;
  std::unordered_map<SequenceId, Returned> returned_;
  std::unordered_set<SequenceId> lacking_;
};

// A drafter that is made of others: all of them hear what it hears.
class Combination : public Drafter {
 public:
  Combination(Host& host, const nlohmann::json& drafters) : parts_(host, drafters) {}
  void observe(std::span<const Outcome> outcomes) override { parts_.observe(outcomes); }
  void observe_step(const StepReport& report) override { parts_.observe_step(report); }
  void forget(const Sequence& sequence) override { parts_.forget(sequence); }
  std::string notice() const override { return parts_.notice(); }

 protected:
  Parts parts_;
};

// Whether the tree has a node that was drawn. That there is one is known before any is drawn.
bool draws(const DraftTree& tree);
// The numbers of the requests that draft, and of those whose drafters only read tokens.
struct Apart {
  std::vector<int> drafting, reading;
};
Apart apart(std::span<const DraftRequest> requests);

// The option "drafters": `meaning` says what they are for.
Option drafters_option(const std::string& meaning);
// Throws Error for a list of none or of more than eight drafters, and as expect_nesting.
void expect_parts(const nlohmann::json& config);
// Throws Error for a combination inside one of its kind, and for components nested more than four deep: a drafter with
// rounds of its own below it, which has an option "inner", counts twice.
void expect_nesting(const nlohmann::json& config);
// Whether it, or a drafter within it, learns from the outcomes of trees that it drew itself and from no others.
bool learns_from_own_trees(const Needs& needs);
// Entry::unite of a drafter whose trees are those of its parts: what all of them may propose, the largest least shape,
// and confidence where every part serves it.
void unite_parts(Needs& own, std::span<const Needs> parts, const nlohmann::json& config);

}  // namespace foretoken
