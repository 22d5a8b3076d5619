// What a step reports of one verified tree: how much of it was drafted, tested and accepted. This module must not know
// drafters, verifiers or policies.
#pragma once
#include <span>
#include <vector>

#include "framework/components/step_report.h"

namespace foretoken {

// Sets what `report` says of a tree: drafted, depth, accepted, rejected and levels. `parents` and `tokens`: [nodes],
// the root among them, parents before their children, the token -1 where a node is absent; `path`: the nodes that the
// verifier accepted, from below the root down; `kept`: how many of the path's tokens and the one that follows them the
// sequence took before it ended. `depth` is scratch memory.
void report_tree(SequenceReport& report, std::span<const std::int32_t> parents, std::span<const Token> tokens,
                 std::span<const std::int32_t> path, int kept, std::vector<int>& depth);

}  // namespace foretoken
