#include "tests/support/mutants.h"

#include "kernels/lane.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

struct BuggyRule {
  Bug bug;

  static int above(const Trial& t, int node) { return node > 0 ? t.parents[node] : 0; }
  int row_of_q(const Trial& t, int node, Bug where) const { return bug == where && t.q_logits[above(t, node)] ? above(t, node) : node; }

  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      auto r = lane.open(t.p(node), t.q(row_of_q(t, node, Bug::residual_of_wrong_row)));
      int chosen = -1;
      std::uint32_t tried = 0;
      for (int c = t.child(node, node); c >= 0 && chosen < 0; c = t.child(node, c), ++tried) {
        const Token x = t.tokens[c];
        const double left = bug == Bug::no_renormalization ? r.above(x) : r(x);
        double ratio = t.certain(c) ? left : left / t.q(row_of_q(t, node, Bug::q_one_row_off))(x);
        if (bug == Bug::generous) ratio *= 1.05;
        if (bug == Bug::deaf) return v.finish(lane.draw(t.p(0), {Role::bonus, 0, 0})), v;
        if (lane.accept(ratio, {Role::accept, std::uint32_t(c), 0})) chosen = c;
        else if (t.certain(c)) lane.refuse_guess(r, x);
        else lane.refuse_draw(r);
      }
      if (chosen >= 0) {
        v.follow(node = chosen, t.tokens[chosen]);
        continue;
      }
      const DrawName name{tried ? Role::residual : Role::bonus, std::uint32_t(node), 0};
      if (bug == Bug::no_residual) v.finish(lane.draw(t.p(node), name));
      else if (bug == Bug::bonus_from_wrong_row && !tried) v.finish(lane.draw(t.p(above(t, node)), name));
      else v.finish(lane.draw(r, name));
      return v;
    }
  }
};

const Soundness kSound{{Drawn::certain, Drawn::chain, Drawn::independent}, "exact", false};

class Slotted : public Verifier {
 public:
  Soundness soundness() const override { return kSound; }
  void verify(Backend& backend, const Trials& trials, Tensor verdicts) override {
    for (int i = 0; i < trials.count(); ++i) {
      Draws draws = trials.draws()[std::size_t(i)];
      draws.stream = std::uint64_t(i);
      HostLane lane(backend, trials.vocab(), draws);
      *reinterpret_cast<Verdict*>(verdicts.row<std::uint8_t>(i)) = BuggyRule{Bug::none}(lane, trials.trials()[i]);
    }
  }
};

class UnwarpedQ : public Drafter {
 public:
  UnwarpedQ(std::unique_ptr<Drafter> inner, Backend& backend) : inner_(std::move(inner)), backend_(backend) {}
  Needs needs() const override { return inner_->needs(); }
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    auto trees = inner_->draft(requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      Warp warp = requests[i].sequence->sampling.warp();
      warp.top_p = 1;
      for (Laws& q : trees[i].q.laws)
        if (q) q = backend_.law(q.logits, {&warp, 1});
    }
    return trees;
  }

 private:
  std::unique_ptr<Drafter> inner_;
  Backend& backend_;
};

// Changes the ancestor bits of every row before the model sees them.
class Masked : public Model {
 public:
  using Change = std::function<void(std::uint64_t& bits)>;
  Masked(std::shared_ptr<Model> inner, Change change) : inner_(std::move(inner)), change_(std::move(change)) {}
  const ModelInfo& info() const override { return inner_->info(); }
  Output forward(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) override {
    for (int r = 0; r < rows.layout.rows && rows.layout.words > 0; ++r) change_(*rows.layout.ancestors.row<std::uint64_t>(r));
    return inner_->forward(backend, rows, kv);
  }

 private:
  std::shared_ptr<Model> inner_;
  Change change_;
};

Registries with_verifier(Registries registries, std::function<std::unique_ptr<Verifier>()> make) {
  registries.verifiers.replace("mutant", {"a planted bug", "", {}, [make](const json&, Host&) { return make(); }});
  return registries;
}

}  // namespace

Registries with_rule(Registries registries, Bug bug) {
  return with_verifier(std::move(registries), [bug] { return std::make_unique<RuleVerifier<BuggyRule>>(kSound, BuggyRule{bug}); });
}

Registries with_slots(Registries registries) {
  return with_verifier(std::move(registries), [] { return std::make_unique<Slotted>(); });
}

Registries with_unwarped_q(Registries registries) {
  Entry<Drafter> entry = registries.drafters.entries().at("draft_model");
  const auto make = entry.make;
  entry.make = [make](const json& o, Host& host) { return std::make_unique<UnwarpedQ>(make(o, host), host.backend()); };
  registries.drafters.replace("draft_model", entry);
  return registries;
}

Tensor Stale::allocate(Shape shape, DType dtype) {
  const Tensor t = ReferenceBackend::allocate(shape, dtype);
  const auto* begin = t.data<std::byte>();
  written_.erase(written_.lower_bound({begin, -1}), written_.lower_bound({begin + t.bytes(), -1}));
  return t;
}

void Stale::store(const Tensor& k, const Tensor& v, const KvLayer& kv, const Layout& layout) {
  for (int r = 0; r < layout.rows; ++r) {
    Layout one = layout;
    one.rows = 1;
    one.slots = layout.slots.rows(r, 1), one.owner = layout.owner.rows(r, 1), one.positions = layout.positions.rows(r, 1);
    const int slot = *one.slots.data<std::int32_t>(), position = *one.positions.data<std::int32_t>();
    const std::int32_t page = layout.tables.row<std::int32_t>(*one.owner.data<std::int32_t>())[slot / kv.page_rows];
    const auto [it, fresh] = written_.try_emplace({kv.pool.row<std::byte>(page) + kv.keys, slot % kv.page_rows}, position);
    if (!fresh && it->second == position) continue;
    it->second = position;
    ReferenceBackend::store(k.rows(r, 1), v.rows(r, 1), kv, one);
  }
}

std::shared_ptr<Model> shortsighted(std::shared_ptr<Model> inner) {
  return std::make_shared<Masked>(std::move(inner), [](std::uint64_t& bits) {
    if ((bits & (bits - 1)) != 0) bits &= bits - 1;  // a row sees itself, but not its first ancestor beyond the trunk
  });
}

std::shared_ptr<Model> squinting(std::shared_ptr<Model> inner) {
  return std::make_shared<Masked>(std::move(inner), [](std::uint64_t& bits) {
    if (bits != 0) bits |= 1;  // the first row beyond the trunk is everybody's ancestor
  });
}

}  // namespace foretoken::test
