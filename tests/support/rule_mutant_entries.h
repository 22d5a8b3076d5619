// The rules of rule_mutants.h, each with a switch for its bugs, as entries of a registry.
#pragma once
#include "tests/support/rule_mutants.h"

namespace foretoken::test {

template <class Rule> Entry<Verifier> entry_of(const Rule& rule, const Soundness& soundness) {
  return {"",
          "",
          {},
          [=](const nlohmann::json&, Host&) { return std::make_unique<RuleVerifier<Rule>>(rule); },
          [=](const nlohmann::json&, const ModelInfo&) { return soundness; }};
}
inline const std::vector<Drawn> kEveryKind{Drawn::certain, Drawn::chain, Drawn::independent, Drawn::without_replacement,
                                           Drawn::marginals};
inline bool repeatless(const Trial& t, int n) { return Drawn(t.drawn[n]) == Drawn::without_replacement; }

Entry<Verifier> recursive_rule(RuleBug bug);
Entry<Verifier> k_seq_rule(RuleBug bug);
Entry<Verifier> block_rule(RuleBug bug);
Entry<Verifier> traversal_rule(RuleBug bug);
Entry<Verifier> best_rule(RuleBug bug);
Entry<Verifier> match_rule(RuleBug bug);
Entry<Verifier> race_rule(RuleBug bug);
Entry<Verifier> kept_above_rule(RuleBug bug);
Entry<Verifier> profile_rule(RuleBug bug);

}  // namespace foretoken::test
