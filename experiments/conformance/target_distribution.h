// The distribution that a target owes under a request's options, from the definitions of the options alone, slowly:
// what proofs compare with. It shares nothing with the engine's way to the same distribution but the warp.
#pragma once
#include <span>
#include <vector>

#include "experiments/conformance/table_model.h"
#include "framework/decode/sequence.h"

namespace foretoken::conformance {

// p(x) after `context`, whose first `prompt` tokens are the prompt.
std::vector<double> target_distribution(const TableModel& target, std::span<const Token> context, int prompt,
                                        const Sampling& sampling);

}  // namespace foretoken::conformance
