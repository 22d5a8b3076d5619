// What another draft length, shape, policy or verifier would have given on a dense trace, without a model: the rounds
// that a run would have had are walked along the recorded outputs. experiments/traces.md has the formulas. This module
// must not know how figures are shown.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "experiments/report/statistics.h"
#include "experiments/trace/cost_table.h"
#include "experiments/trace/round_reach.h"
#include "framework/components/registry.h"

namespace foretoken {

struct Replayed {
  std::string what, verifier;  // "length 4"; the verifier's name
  Basis basis = Basis::exact;
  double rows = 0;                // of the target's forward, the most of a round and sequence
  double tokens = 0, rounds = 0;  // expected, of all requests
  Interval tau = Interval::unknown(), speedup = Interval::unknown();  // over prompts
  std::string untimed = {};  // why there is no speedup; empty where there is one
};

class Replay {
 public:
  // A trace that is not dense, or whose policy ended drafts by their confidence, is an Error. All arguments must
  // outlive this object.
  Replay(const Trace& trace, const CostTable& costs, const Registries& registries);

  const TracedShape& shape() const { return shape_; }
  // A draft that is cut in every round.
  Replayed cut(const std::string& what, const TreeCut& cut, const std::string& verifier) const;
  // The best number of levels in every round, known only afterwards: of all that follow, the one with the least
  // expected time. For rules that decide from the root down or along a chain, of which a longer draft changes no
  // earlier level.
  Replayed oracle(const TreeCut& cut, const std::string& verifier) const;
  // A length policy, asked before every round as an engine asks it. Where rounds are probabilities, the mean of walks
  // that draw them.
  Replayed policy(const nlohmann::json& config, const std::string& verifier) const;

 private:
  struct Sums {  // of one request
    double rounds = 0, seconds = 0;
  };
  struct Rule {
    RoundReach reach;
    Basis basis;
  };
  Soundness soundness_of(const std::string& verifier) const;
  Sums walk(TracedOutput output, const TreeCut& cut, const Rule& rule, bool timed) const;
  Sums best_walk(TracedOutput output, const TreeCut& cut, const Rule& rule) const;
  Sums follow(TracedOutput output, LengthPolicy& policy, const Budget& stated, const Rule& rule, std::uint64_t number,
              bool timed) const;
  template <class Walk> Replayed all(Replayed row, const Walk& walk) const;
  std::string untimed(const TreeCut& cut) const;

  const Trace& trace_;
  const CostTable& costs_;
  const Registries& registries_;
  std::vector<std::vector<const TracedRound*>> outputs_;
  TracedShape shape_;
};

}  // namespace foretoken
