#include <array>

#include "tests/support/rule_mutant_entries.h"

namespace foretoken::test {

MutantRule rule_of(RuleBug bug) {
  if (bug < RuleBug::weight_forgotten_beyond_six) return MutantRule::recursive;
  if (bug < RuleBug::weight_kept_after_rejection) return MutantRule::block;
  if (bug < RuleBug::rho_is_one) return MutantRule::traversal;
  if (bug < RuleBug::selection_is_q) return MutantRule::k_seq;
  if (bug < RuleBug::one_draw_for_all_nodes) return MutantRule::best;
  if (bug < RuleBug::position_of_the_root) return MutantRule::match;
  if (bug < RuleBug::threshold_reversed) return MutantRule::race;
  return bug < RuleBug::decay_forgotten ? MutantRule::kept_above : MutantRule::profile;
}

namespace {

constexpr std::array kNames{"none",
                            "no_update_after_second_draw",
                            "no_update_after_third_draw",
                            "no_update_after_second_guess",
                            "no_update_after_third_guess",
                            "repeatless_as_independent",
                            "independent_as_repeatless",
                            "repeatless_not_renormalized",
                            "repeatless_left_one_late",
                            "residual_of_512_tokens",
                            "residual_of_256_tokens",
                            "first_family_alone",
                            "squared_ratio",
                            "shared_uniform",
                            "residual_shares_uniform",
                            "bonus_of_parent",
                            "guess_as_draw",
                            "last_sibling_is_certain",
                            "no_update_after_fourth_draw",
                            "no_update_deep",
                            "guess_after_draws_of_p",
                            "guess_not_renormalized",
                            "last_sibling_first",
                            "residual_without_middle",
                            "residual_without_rarities",
                            "names_of_eight_nodes",
                            "names_of_four_siblings",
                            "absent_is_refused",
                            "repeatless_left_is_rounding",
                            "no_update_from_17th_draw",
                            "no_update_from_17th_guess",
                            "weight_forgotten_beyond_six",
                            "weight_not_capped",
                            "inner_nodes_end_with_weight",
                            "residual_without_weight",
                            "one_uniform_for_all_levels",
                            "from_the_root_down",
                            "last_level_token_wise",
                            "weight_forgotten_beyond_twelve",
                            "guesses_keep_the_weight",
                            "rest_of_whole_p",
                            "weight_kept_after_rejection",
                            "rejection_without_weight",
                            "second_subtree_of_p",
                            "traversal_ignores_repeats",
                            "deep_siblings_of_p",
                            "left_of_first_sibling",
                            "left_is_rounding",
                            "weight_kept_below_root",
                            "rho_is_one",
                            "residual_of_recursion",
                            "beta_of_512_tokens",
                            "rho_below_k",
                            "absent_are_counted",
                            "selection_is_q",
                            "selection_of_first",
                            "one_draw_for_all_nodes",
                            "last_of_equals",
                            "position_of_the_root",
                            "threshold_reversed",
                            "threshold_of_warped",
                            "option_ignored",
                            "decay_forgotten"};
static_assert(kNames.size() == std::size_t(RuleBug::count));

}  // namespace

const char* name_of(RuleBug bug) { return kNames[std::size_t(bug)]; }

Registries with_mutant_rule(Registries registries, MutantRule rule, RuleBug bug) {
  static constexpr std::array kMakers{recursive_rule, block_rule, traversal_rule,  k_seq_rule,  best_rule,
                                      match_rule,     race_rule,  kept_above_rule, profile_rule};
  registries.verifiers.add("rule", kMakers[std::size_t(rule)](bug));
  return registries;
}

}  // namespace foretoken::test
