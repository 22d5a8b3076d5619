// Planted bugs in the rules of verifiers: of families of siblings, of whole paths, of K-SEQ, of lossy rules. Each rule
// is written here again with a switch for every bug; `none` is the correct rule.
#pragma once
#include <string>
#include <vector>

#include "framework/components/registry.h"

namespace foretoken::test {

enum class RuleBug {
  none,
  // Recursive rejection.
  no_update_after_second_draw,
  no_update_after_third_draw,
  no_update_after_second_guess,
  no_update_after_third_guess,
  repeatless_as_independent,    // siblings without repeats are rejected as i.i.d. ones
  independent_as_repeatless,    // and the reverse
  repeatless_not_renormalized,  // the ratio divides by q, not by what the predecessors left of it
  repeatless_left_one_late,     // the mass that is left does not lose the latest predecessor
  residual_of_512_tokens,       // the residual's draw stops at token 512
  residual_of_256_tokens,       // at token 256
  first_family_alone,           // below the root's children residuals are those of p
  squared_ratio,                // accepts with (p / q)^2
  shared_uniform,               // all siblings use one draw
  residual_shares_uniform,      // the residual uses the draw of the first sibling's acceptance
  bonus_of_parent,              // after a leaf the next token is drawn from its parent's distribution
  guess_as_draw,                // a rejected guess is taken from p as a draw of q would be
  last_sibling_is_certain,      // the last sibling is accepted whatever it is
  // Verification of whole paths.
  weight_forgotten_beyond_six,  // the joint weight begins anew at depth 7
  weight_not_capped,            // the joint weight may exceed 1
  inner_nodes_end_with_weight,  // an inner node ends with its weight, not with what its child left
  residual_without_weight,      // (p - q)+ after a path of any weight
  one_uniform_for_all_levels,
  from_the_root_down,     // ends before the first level that fails
  last_level_token_wise,  // the last node is accepted by its own ratio
  // Traversal of trees.
  weight_kept_after_rejection,  // the parent's weight is not reduced by a rejected child
  rejection_without_weight,     // the child is taken out of the parent's distribution as if its weight were 1
  second_subtree_of_p,          // later siblings are compared with p
  traversal_ignores_repeats,    // siblings without repeats as i.i.d. ones
  // K-SEQ.
  rho_is_one,
  residual_of_recursion,  // (r - q)+ after all siblings were rejected
  beta_of_512_tokens,
  // A lossy rule: tokens that p gives at least 0.3 are kept.
  threshold_reversed,
  threshold_of_warped,  // compares the warped probability
  // Synthetic acceptance of .8, .8 * .5, ...
  decay_forgotten,
  count
};

// Which rule a bug is planted in, and the kinds of nodes that the rule takes.
enum class MutantRule { recursive, block, traversal, k_seq, kept_above, profile };
MutantRule rule_of(RuleBug bug);
const char* name_of(RuleBug bug);

// `registries` with the verifier "rule", which is `rule` with this bug.
Registries with_mutant_rule(Registries registries, MutantRule rule, RuleBug bug);

}  // namespace foretoken::test
