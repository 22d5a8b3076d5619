#include "tests/support/mutants.h"

#include <algorithm>
#include <utility>

#include "kernels/lane.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

struct BuggyRule {
  Bug bug;

  static int above(const Trial& t, int node) { return node > 0 ? t.parents[node] : 0; }
  int row_of_q(const Trial& t, int node, Bug where) const {
    return bug == where && t.q_logits[above(t, node)] ? above(t, node) : node;
  }

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
        if (bug == Bug::accepts_too_often) ratio *= 1.05;
        if (bug == Bug::never_accepts) return v.finish(lane.draw(t.p(0), {Role::bonus, 0, 0})), v;
        if (lane.accept(ratio, {Role::accept, std::uint32_t(c), 0}))
          chosen = c;
        else if (t.certain(c))
          lane.reject_guess(r, x);
        else
          lane.reject_draw(r);
      }
      if (chosen >= 0) {
        v.follow(node = chosen, t.tokens[chosen]);
        continue;
      }
      const DrawName name{tried ? Role::residual : Role::bonus, std::uint32_t(node), 0};
      if (bug == Bug::no_residual)
        v.finish(lane.draw(t.p(node), name));
      else if (bug == Bug::bonus_from_wrong_row && !tried)
        v.finish(lane.draw(t.p(above(t, node)), name));
      else
        v.finish(lane.draw(r, name));
      return v;
    }
  }
};

const Soundness kSound{{Drawn::certain, Drawn::chain, Drawn::independent}, "exact", false};

class Slotted : public Verifier {
 public:
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
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    auto trees = inner_->draft(requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      Warp warp = requests[i].sequence->sampling.warp();
      warp.top_p = 1;
      for (Distributions& q : trees[i].q.distributions)
        if (q) q = backend_.distributions(q.logits, {&warp, 1});
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
    for (int r = 0; r < rows.layout.rows && rows.layout.words > 0; ++r)
      change_(*rows.layout.ancestors.row<std::uint64_t>(r));
    return inner_->forward(backend, rows, kv);
  }

 private:
  std::shared_ptr<Model> inner_;
  Change change_;
};

// Every sequence's block table ends in the last page of the first.
class Aliased : public Model {
 public:
  explicit Aliased(std::shared_ptr<Model> inner) : inner_(std::move(inner)) {}
  const ModelInfo& info() const override { return inner_->info(); }
  Output forward(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) override {
    const Layout& l = rows.layout;
    std::map<std::int32_t, std::int32_t> last;  // table -> its last written page
    for (int r = 0; r < l.rows; ++r) {
      std::int32_t& page = last[*l.owner.row<std::int32_t>(r)];
      page = std::max(page, *l.slots.row<std::int32_t>(r) / kv[0].page_rows);
    }
    for (const auto& [table, page] : last)
      l.tables.row<std::int32_t>(table)[page] = l.tables.row<std::int32_t>(0)[last.begin()->second];
    return inner_->forward(backend, rows, kv);
  }

 private:
  std::shared_ptr<Model> inner_;
};

// The last draft of "draft_model" for each sequence, readable by the policy.
struct LastDrafts {
  struct Draft {
    int root = 0;   // the sequence's length when it was drafted
    Tokens tokens;  // of the chain below the root
  };
  std::map<SequenceId, Draft> drafts;
};

class ReportingDrafter : public Drafter {
 public:
  ReportingDrafter(std::unique_ptr<Drafter> inner, std::shared_ptr<LastDrafts> last_drafts)
      : inner_(std::move(inner)), last_drafts_(std::move(last_drafts)) {
    last_drafts_->drafts.clear();
  }
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    auto trees = inner_->draft(requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      LastDrafts::Draft& d = last_drafts_->drafts[requests[i].sequence->id] = {requests[i].sequence->length(), {}};
      for (int n = 1; n < trees[i].nodes; ++n) d.tokens.push_back(*trees[i].tokens.row<Token>(n));
    }
    return trees;
  }

 private:
  std::unique_ptr<Drafter> inner_;
  std::shared_ptr<LastDrafts> last_drafts_;
};

class DiscardReader : public LengthPolicy {
 public:
  DiscardReader(int length, std::shared_ptr<LastDrafts> last_drafts)
      : length_(length), last_drafts_(std::move(last_drafts)) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> budgets;
    for (const PastOnly& p : past) {
      const LastDrafts::Draft& d = last_drafts_->drafts[p.id];
      const std::size_t same = std::size_t(std::max(0, p.length - d.root));  // the draft for the next position
      budgets.push_back(p.rounds > 0 && same < d.tokens.size() && d.tokens[same] == 0 ? Budget{}
                                                                                      : Budget{length_ + 1, length_});
    }
    return budgets;
  }

 private:
  int length_;
  std::shared_ptr<LastDrafts> last_drafts_;
};

Registries with_verifier(Registries registries, std::function<std::unique_ptr<Verifier>()> make) {
  registries.verifiers.replace("mutant",
                               entry_that<Verifier>(states(kSound), [make](const json&, Host&) { return make(); }));
  return registries;
}

}  // namespace

Registries with_rule(Registries registries, Bug bug) {
  return with_verifier(registries, [bug] { return std::make_unique<RuleVerifier<BuggyRule>>(BuggyRule{bug}); });
}

Registries with_slots(Registries registries) {
  return with_verifier(registries, [] { return std::make_unique<Slotted>(); });
}

Registries with_unwarped_q(Registries registries) {
  Entry<Drafter> entry = registries.drafters.entries().at("draft_model");
  const auto make = entry.make;
  entry.make = [make](const json& o, Host& host) { return std::make_unique<UnwarpedQ>(make(o, host), host.backend()); };
  registries.drafters.replace("draft_model", entry);
  return registries;
}

Registries with_discard_reader(Registries registries) {
  const auto last_drafts = std::make_shared<LastDrafts>();
  Entry<Drafter> entry = registries.drafters.entries().at("draft_model");
  const auto make = entry.make;
  entry.make = [make, last_drafts](const json& o, Host& host) {
    return std::make_unique<ReportingDrafter>(make(o, host), last_drafts);
  };
  registries.drafters.replace("draft_model", entry);
  registries.policies.replace("discard_reader",
                              entry_that<LengthPolicy>(states(Budget{4, 3}), [last_drafts](const json&, Host&) {
                                return std::make_unique<DiscardReader>(3, last_drafts);
                              }));
  return registries;
}

void name_by_position(Draws& draws, DrawName& name) {
  if (name.role == Role::noise) return;
  const bool of_children = name.role == Role::residual || name.role == Role::bonus;
  draws.root += name.node + (of_children ? 1 : 0);
  name.node = 0;
}

void late_length(Limits& limits) {
  const int most = limits.max_new_tokens;
  limits.max_new_tokens += 64;
  limits.stop = [most](std::span<const Token> generated, int) {
    return int(generated.size()) >= most ? std::optional<int>(int(generated.size())) : std::nullopt;
  };
}

void late_stop_token(Limits& limits) {
  const std::vector<Token> stops = std::exchange(limits.stop_tokens, {});
  limits.stop = [stops](std::span<const Token> generated, int) {
    return std::ranges::find(stops, generated.back()) != stops.end() ? std::optional<int>(int(generated.size()))
                                                                     : std::nullopt;
  };
}

Distributions LastOfEquals::distributions(const Tensor& logits, std::span<const Warp> warps) {
  Distributions laws = ReferenceBackend::distributions(logits, warps);
  for (int i = 0; i < laws.count() && laws.count() > 1; ++i) {
    DistributionRow row = laws[i].row;
    for (Token x = 0; x < laws.vocab(); ++x)
      if (logits.row<float>(i)[x] == row.peak) row.greedy = x;
    keep_distribution(row, laws, i);
  }
  return laws;
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
    one.slots = layout.slots.rows(r, 1), one.owner = layout.owner.rows(r, 1),
    one.positions = layout.positions.rows(r, 1);
    const int slot = *one.slots.data<std::int32_t>(), position = *one.positions.data<std::int32_t>();
    const std::int32_t page = layout.tables.row<std::int32_t>(*one.owner.data<std::int32_t>())[slot / kv.page_rows];
    const auto [it, fresh] =
        written_.try_emplace({kv.pool.row<std::byte>(page) + kv.keys, slot % kv.page_rows}, position);
    if (!fresh && it->second == position) continue;
    it->second = position;
    ReferenceBackend::store(k.rows(r, 1), v.rows(r, 1), kv, one);
  }
}

std::shared_ptr<Model> aliased(std::shared_ptr<Model> inner) { return std::make_shared<Aliased>(std::move(inner)); }

std::shared_ptr<Model> shortsighted(std::shared_ptr<Model> inner) {
  return std::make_shared<Masked>(std::move(inner), [](std::uint64_t& bits) {
    if ((bits & (bits - 1)) != 0) bits &= bits - 1;  // a row sees itself, but not its first ancestor beyond the trunk
  });
}

std::shared_ptr<Model> squinting(std::shared_ptr<Model> inner) {
  return std::make_shared<Masked>(std::move(inner), [](std::uint64_t& bits) {
    if (bits != 0) bits |= 1;  // the first row beyond the trunk becomes an ancestor of all
  });
}

}  // namespace foretoken::test
