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
  no_update_after_fourth_draw,
  no_update_deep,               // from depth 7 on, after a second refused draw
  guess_after_draws_of_p,       // a guess is compared with p, whatever was refused before it
  guess_not_renormalized,       // what a refused guess leaves is not divided by its mass
  last_sibling_first,           // siblings are tried from the last to the first, as if the first had been drawn last
  residual_without_middle,      // the residual's draw leaves out what lies between token 512 and the last 256
  residual_without_rarities,    // and probabilities below 1e-5
  names_of_eight_nodes,         // draws are named by the node's number modulo 8
  names_of_four_siblings,       // from the fifth sibling on acceptances share a name
  absent_is_refused,            // an absent node counts as a refused draw
  repeatless_left_is_rounding,  // the mass that is left is 1 minus that of the predecessors
  no_update_from_17th_draw,     // the 17th refused draw of a family and all after it change nothing
  no_update_from_17th_guess,
  // Verification of whole paths.
  weight_forgotten_beyond_six,  // the joint weight begins anew at depth 7
  weight_not_capped,            // the joint weight may exceed 1
  inner_nodes_end_with_weight,  // an inner node ends with its weight, not with what its child left
  residual_without_weight,      // (p - q)+ after a path of any weight
  one_uniform_for_all_levels,
  from_the_root_down,     // ends before the first level that fails
  last_level_token_wise,  // the last node is accepted by its own ratio
  weight_forgotten_beyond_twelve,
  guesses_keep_the_weight,  // a guess below a node has its parent's weight
  rest_of_whole_p,          // the mass that a guess leaves is not multiplied by the weight
  // Traversal of trees.
  weight_kept_after_rejection,  // the parent's weight is not reduced by a rejected child
  rejection_without_weight,     // the child is taken out of the parent's distribution as if its weight were 1
  second_subtree_of_p,          // later siblings are compared with p
  traversal_ignores_repeats,    // siblings without repeats as i.i.d. ones
  deep_siblings_of_p,           // from depth 7 on later siblings are compared with p
  left_of_first_sibling,        // of siblings without repeats only the first is taken out of q
  left_is_rounding,             // what is left of q for siblings without repeats is 1 minus the others' mass
  weight_kept_below_root,       // a parent's weight is reduced at the root's children alone
  // K-SEQ.
  rho_is_one,
  residual_of_recursion,  // (r - q)+ after all siblings were rejected
  beta_of_512_tokens,
  rho_below_k,         // rho = k - 1
  absent_are_counted,  // k counts absent siblings
  // The child with the greatest p / q among its siblings, verified as a block.
  selection_is_q,      // the selected child counts as drawn from q
  selection_of_first,  // of equal ratios the last is selected, but the distribution is that of no ties
  // The target's own token, drawn with a name of its node, or by the race of its position.
  one_draw_for_all_nodes,
  last_of_equals,  // at temperature 0 the last of the most probable tokens is the target's
  position_of_the_root,
  // A lossy rule: tokens that p gives at least `least`, 0.3 by default, are kept.
  threshold_reversed,
  threshold_of_warped,  // compares the warped probability
  option_ignored,       // compares with 0.3, whatever the option is
  // Synthetic acceptance of .8, .8 * .5, ...
  decay_forgotten,
  count
};

// Which rule a bug is planted in, and the kinds of nodes that the rule takes.
enum class MutantRule { recursive, block, traversal, k_seq, best, match, race, kept_above, profile };
MutantRule rule_of(RuleBug bug);
const char* name_of(RuleBug bug);

// `registries` with the verifier "rule", which is `rule` with this bug.
Registries with_mutant_rule(Registries registries, MutantRule rule, RuleBug bug);

}  // namespace foretoken::test
