// Registers the drafters and length policies. A new one is one file, its declaration, and one line here.
#include "drafters/drafters.h"

namespace foretoken {

void register_drafters(Registries& registries) {
  registries.drafters.add("none", none());
  registries.drafters.add("ngram", ngram());
  registries.drafters.add("draft_model", draft_model());
  registries.drafters.add("draft_tree", draft_tree());
  registries.drafters.add("draft_dynamic", draft_dynamic());
  registries.drafters.add("eagle", eagle());
  registries.drafters.add("eagle3", eagle3());
  registries.drafters.add("hydra", hydra());
  registries.drafters.add("medusa", medusa());
  registries.drafters.add("mtp", mtp());
  registries.drafters.add("pard", pard());
  registries.drafters.add("rest", rest());
  registries.drafters.add("dflash", dflash());
  registries.drafters.add("dspark", dspark());
  registries.drafters.add("layer_skip", layer_skip());
  registries.drafters.add("lookahead", lookahead());
  registries.drafters.add("early_exit", early_exit());
  registries.drafters.add("suffix", suffix());
  registries.drafters.add("recycling", recycling());
  registries.drafters.add("longest", longest());
  registries.drafters.add("first_hit", first_hit());
  registries.drafters.add("merge", merge());
  registries.drafters.add("bandit", bandit());
  registries.drafters.add("cascade", cascade());
  registries.drafters.add("window", window());
  registries.drafters.add("snapkv", snapkv());
  registries.drafters.add("h2o", h2o());
  registries.drafters.add("quest", quest());

  registries.policies.add("fixed", fixed());
  registries.policies.add("goodput", goodput());
  registries.policies.add("bandit_length", bandit_length());
  registries.policies.add("gamma_tune", gamma_tune());
  registries.policies.add("table", table());
}

}  // namespace foretoken
