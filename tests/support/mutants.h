// Planted bugs in a verifier's rule, a drafter, a backend's operation, a model's layout or a draw's name. A law is
// tested by the bugs that it detects. The program never registers them.
#pragma once
#include <map>

#include "experiments/conformance/scenario.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken::test {

using namespace conformance;

// Bugs of an acceptance rule. `none` is correct speculative sampling.
enum class Bug {
  none,
  no_residual,            // after a rejection the next token is drawn from p
  residual_of_wrong_row,  // the rejected mass is subtracted from the row above
  q_one_row_off,          // the ratio reads q after the parent's parent
  no_renormalization,     // a second sibling is tested against the residual of p, not divided by its mass
  bonus_from_wrong_row,   // after full acceptance the next token comes from the row above
  accepts_too_often,      // accepts 5 % more
  never_accepts,          // never accepts: exact, but never faster
};
// `registries` with the verifier "mutant", which has this bug.
Registries with_rule(Registries registries, Bug bug);
// The verifier "mutant" is sound, but names its draws by the slot of the sequence in the batch.
Registries with_slots(Registries registries);
// The drafter "draft_model" reports the distribution before top-p as q.
Registries with_unwarped_q(Registries registries);

// Compaction is skipped: `move` does nothing.
class Unmoved : public ReferenceBackend {
 public:
  void move(std::span<const Moves>) override {}
};

// Keys are stale after a rejection: a slot that has a key of this position is not overwritten.
class Stale : public ReferenceBackend {
 public:
  Tensor allocate(Shape shape, DType dtype) override;  // new memory holds no keys
  void store(const Tensor& k, const Tensor& v, const KvLayer& kv, const Layout& layout) override;

 private:
  std::map<std::pair<const std::byte*, int>, int> written_;  // (page's address, row) -> position
};

// Ties of logits go to the last maximum if several rows are evaluated at once, as in another kernel.
class LastOfEquals : public ReferenceBackend {
 public:
  Distributions distributions(const Tensor& logits, std::span<const Warp> warps) override;
};

// All sequences of a forward share the last page of the first, so each overwrites the tree of the one before.
std::shared_ptr<Model> aliased(std::shared_ptr<Model> inner);

// `registries` with the policy "discard_reader", which drafts nothing if a discarded draft was token 0, and a
// "draft_model" that reports its drafts to it.
Registries with_discard_reader(Registries registries);
// Names by absolute position alone, so a later round reuses a draw that an earlier round used.
void name_by_position(Draws& draws, DrawName& name);

// Limits checked once a round instead of after every token: too late within an accepted path.
void late_length(Limits& limits);
void late_stop_token(Limits& limits);

// The target sees one ancestor too few, or one sibling too many.
std::shared_ptr<Model> shortsighted(std::shared_ptr<Model> inner);
std::shared_ptr<Model> squinting(std::shared_ptr<Model> inner);

}  // namespace foretoken::test
