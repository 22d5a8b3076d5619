// What a trace keeps of the distributions of a round: a few numbers for each node, computed on the device that holds
// the distributions. This module must not know files, engines, or which verifier judges the round.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "framework/components/verifier.h"

namespace foretoken {

// Of one node of a tree; plain data, written on the device.
struct NodeNumbers {
  double p = 0,
         q = 0;       // of the node's token after its parent: the target's, the draft's (1 for a guess); 0 at the root
  double accept = 0;  // with which recursive rejection accepts it once its earlier siblings are rejected: of p for a
                      // guess, of q for a draw, of q without the earlier siblings for one without replacement
  double overlap = -1;             // sum_x min(p(x), q(x)) after the node; -1 where no child was drawn
  double p_next = 0, q_next = -1;  // at the last node of the accepted path: of the verdict's last token
};

// Of all nodes of all trials, one tree after another. `verdicts`: those of the trials, on the backend's device. Waits
// for the device.
std::vector<NodeNumbers> node_numbers(Backend& backend, const Trials& trials, const Tensor& verdicts);

// A verifier that accepts nothing: every round emits the target's own next token, drawn as plain decoding draws it. So
// drafts are seen at every position of plain decoding's output. This module must not know what is done with them.

// `race`: the token is the winner of the race at its position, as for a verifier with Soundness::race.
std::unique_ptr<Verifier> one_token(bool race);

}  // namespace foretoken
