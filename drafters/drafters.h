// The drafters and length policies that come with the project, one file each. They must not know each other, nor
// verifiers: those that are made of others name them in examples alone.
#pragma once
#include "framework/components/host.h"
#include "framework/components/registry.h"

namespace foretoken {

Entry<Drafter> none();
Entry<Drafter> ngram();
Entry<Drafter> draft_model();
Entry<Drafter> draft_tree();
Entry<Drafter> draft_dynamic();
Entry<Drafter> eagle();
Entry<Drafter> eagle3();
Entry<Drafter> hydra();
Entry<Drafter> medusa();
Entry<Drafter> mtp();
Entry<Drafter> pard();
Entry<Drafter> rest();
Entry<Drafter> dflash();
Entry<Drafter> dspark();
Entry<Drafter> layer_skip();
Entry<Drafter> lookahead();
Entry<Drafter> early_exit();
Entry<Drafter> suffix();
Entry<Drafter> recycling();
Entry<Drafter> longest();
Entry<Drafter> first_hit();
Entry<Drafter> merge();
Entry<Drafter> bandit();
Entry<Drafter> cascade();
Entry<Drafter> window();
Entry<Drafter> snapkv();
Entry<Drafter> h2o();
Entry<Drafter> quest();

Entry<LengthPolicy> fixed();
Entry<LengthPolicy> goodput();
Entry<LengthPolicy> bandit_length();
Entry<LengthPolicy> gamma_tune();
Entry<LengthPolicy> table();

}  // namespace foretoken
