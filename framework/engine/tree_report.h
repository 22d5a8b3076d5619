// What a step reports of one verified tree: how much of it was drafted, tested and accepted. This module must not know
// drafters, verifiers or policies.
#pragma once
#include <span>
#include <vector>

#include "framework/components/step_report.h"

namespace foretoken {

// Sets what `report` says of a tree: drafted, depth, accepted, rejected and levels. `parents` and `tokens`: [nodes],
// the root among them, parents before their children, the token -1 where a node is absent; `path`: the accepted nodes,
// from below the root down. `depth` is scratch memory.
void report_tree(SequenceReport& report, std::span<const std::int32_t> parents, std::span<const Token> tokens,
                 std::span<const std::int32_t> path, std::vector<int>& depth);

}  // namespace foretoken
