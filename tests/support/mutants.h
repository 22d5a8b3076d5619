// Planted bugs, each through a seam: a verifier's rule, a drafter, a backend's operation, a model's layout, a draw's
// name. What a law is worth is shown by what it kills. Nothing here is ever registered in the program.
#pragma once
#include <map>

#include "experiments/conformance/scenario.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken::test {

using namespace conformance;

// Bugs of a rule of acceptance. `none` is speculative sampling as it should be.
enum class Bug {
  none,
  no_residual,            // after a refusal the next token is drawn from p
  residual_of_wrong_row,  // the refused mass is subtracted from the row above
  q_one_row_off,          // the ratio reads q after the parent's parent
  no_renormalization,     // a second sibling is tested against what is left of p, not divided by its mass
  bonus_from_wrong_row,   // after full acceptance the next token comes from the row above
  generous,               // accepts 5 % more
  deaf,                   // never accepts: still exact, never faster
};
// `registries` with the verifier "mutant", which has this bug.
Registries with_rule(Registries registries, Bug bug);
// The verifier "mutant" is sound, but names its draws by the slot of the sequence in the batch.
Registries with_slots(Registries registries);
// The drafter "draft_model" says that it drew from the law before top-p.
Registries with_unwarped_q(Registries registries);

// Compaction is skipped: `move` does nothing.
class Unmoved : public ReferenceBackend {
 public:
  void move(std::span<const KvLayer>, const Tensor&, std::span<const std::int32_t>,
            std::span<const std::int32_t>) override {}
};

// Keys are stale after a rejection: a slot that holds the key of its position keeps it, whoever comes.
class Stale : public ReferenceBackend {
 public:
  Tensor allocate(Shape shape, DType dtype) override;  // fresh memory holds no keys
  void store(const Tensor& k, const Tensor& v, const KvLayer& kv, const Layout& layout) override;

 private:
  std::map<std::pair<const std::byte*, int>, int> written_;  // (page's address, row) -> position
};

// Ties of logits go to the last of the greatest wherever several rows are asked about at once, as another kernel might
// have it.
class LastOfEquals : public ReferenceBackend {
 public:
  Distributions distributions(const Tensor& logits, std::span<const Warp> warps) override;
};

// All sequences of a forward share the last page of the first: what one writes for its tree the next overwrites.
std::shared_ptr<Model> aliased(std::shared_ptr<Model> inner);

// `registries` with the policy "nosy", which drafts nothing after a discarded guess that was 0, and "draft_model"
// telling it.
Registries with_nosy_policy(Registries registries);
// Names by absolute position alone, so that a draw which an earlier round has looked at is met again.
void name_by_position(Draws& draws, DrawName& name);

// Ends that are looked for once a round, not token by token: too late inside an accepted path.
void late_length(Limits& limits);
void late_stop_token(Limits& limits);

// The target sees one ancestor too few, or one sibling too many.
std::shared_ptr<Model> shortsighted(std::shared_ptr<Model> inner);
std::shared_ptr<Model> squinting(std::shared_ptr<Model> inner);

}  // namespace foretoken::test
