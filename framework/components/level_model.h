// What drafters that grow trees level by level ask of a model, whatever it is: a smaller model, a head with a cache of
// its own, or heads that have none. This module must not know how tokens are chosen or which shape a tree has.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "framework/components/drafter.h"
#include "framework/decode/node_distributions.h"
#include "kernels/error.h"

namespace foretoken {

class LevelModel {
 public:
  virtual ~LevelModel() = default;
  // The budget of a request within what this model can draft.
  virtual Budget budget(const DraftRequest& r) const = 0;

  // The first forward of a round.
  struct First {
    std::vector<Segment> segments;  // those with a tree, in the order of `active`, then those without
    std::vector<int> active;        // the requests whose root is fed, and which may therefore be drafted for
  };
  // Begins a round. `fed`: the most rows of a request's tree that the drafter feeds in this round, the root among them.
  virtual First begin(std::span<const DraftRequest> requests, std::span<const DraftTree> trees,
                      const std::function<int(const DraftRequest&)>& fed) = 0;
  // One forward: the logits of the fed nodes, segment after segment (CachedModel::run). First the segments of begin(),
  // then those of nodes whose parents were fed in this round.
  virtual Output run(std::span<const Segment> segments) = 0;

  // The most levels below a root that it can draft.
  virtual int levels() const { return kMaxPath; }
  // Whether the distributions of all levels are known before any token is drafted: they depend on no drafted token
  // (Drawn::marginals).
  virtual bool marginals() const { return false; }
  // Then, in place of all run() of a round: the logits of the tokens on the first `levels` levels below the roots,
  // level after level of each segment, f32 [segments * levels, vocab].
  virtual Output run_levels(std::span<const Segment> segments, int levels) {
    (void)segments, (void)levels;
    throw Error("the model " + info().name + " knows no distributions before tokens are drafted; feed it its levels");
  }

  // The distributions of these logits, adjusted as the target's are.
  virtual Distributions distributions(const Output& out, std::span<const DistributionAfter> rows) = 0;
  virtual void forget(const Sequence& sequence) = 0;
  virtual const ModelInfo& info() const = 0;
};

}  // namespace foretoken
