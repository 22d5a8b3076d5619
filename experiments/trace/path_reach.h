// With which probability a verifier accepts how much of a given tree, by the verifier's own rule: every outcome of its
// decisions is followed on the host, with the tree's tokens fixed. This module must not know any verifier by name.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "experiments/trace/trace.h"
#include "framework/components/verifier.h"

namespace foretoken {

// A verifier whose acceptance of other verifiers' trees is found.
struct Judge {
  std::unique_ptr<Verifier> verifier;
  Soundness soundness;
};

class PathReach {
 public:
  // For each trial, of the tree cut to 1, 2, ... levels. On a device the distributions of all trees are copied to the
  // host first. A verifier of races is an Error: its decisions follow from the noise that the drafts were drawn with;
  // so is a tree with nodes that the verifier does not take.
  std::vector<Reach> of(Backend& backend, const Trials& trials, const Judge& judge, const std::string& name);

 private:
  HostTrials copies_;
};

}  // namespace foretoken
