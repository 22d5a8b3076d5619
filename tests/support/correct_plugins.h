// Correct components of kinds that no built-in one is of, as plugins register them: no law may refuse them. The program
// never registers them.
#pragma once
#include "framework/components/registry.h"

namespace foretoken::test {

// `registries` with, as of one plugin ("libcorrect.so"):
// - the policy "goodput", which drafts the length that gave the most tokens for each second of its steps;
// - the drafter "timed", a draft model that is asked for all levels or for one, whichever cost less time for each token
//   that was accepted;
// - the drafter "marginals", all of whose levels are drawn from one distribution of its model;
// - the drafter "confident", prompt lookup that drafts nothing where Budget::confidence is above its own, and the
// policy
//   "demanding", which sets that;
// - the drafter "skipping", whose inner drafter is not called for sequences of odd length, "alternating", whose two are
//   called in turn, and "pausing", whose inner drafter is not called in every second step;
// - the policy "long", which gives chains of `levels` levels.
Registries with_correct_plugins(const Registries& registries);
// The same without the drafter "confident".
Registries with_demanding_policy(Registries registries);

}  // namespace foretoken::test
