// A drafter for the drafter: a middle model drafts a chain, and a cheaper inner drafter drafts for the middle model
// (staged speculation: Spector and Re 2023, arXiv 2308.04623; cascade speculative drafting: Chen et al. 2023,
// 2312.11462; TriForce: Sun et al. 2024, 2404.11912). In each inner round the inner drafter grows a tree below the path
// so far, one forward of the middle model judges it by the inner verifier, and what that emits, its own last token
// included, extends the path. So the chain is that of `draft_model`, at fewer forwards of the middle model.
//
// The middle model is a loaded one, or what another drafter drafts with (Entry::model): the target itself on few pages
// of its own cache, as TriForce has it, or without some of its layers. Its rows of the chain then lie behind the
// target's, where the target writes over them when it verifies.
//
// Each token of the chain is drawn from the middle model's distribution q after its path, whoever verifies the chain
// later. Where the middle model selects pages, q also depends on where the inner round's root is, which earlier rounds
// decided, but on no token that is judged by it. An inner verifier that is exact over rounds has P(x_1 .. x_i, n >= i)
// = P(x_1 .. x_{i-1}, n >= i) q(x_i | x_1 .. x_{i-1}) for the n tokens that a round emits: given that there is an i-th
// token, and those before it, it is drawn from q. That there is one was decided by the tokens before it and by draws
// that tell nothing of it. So a chain may be cut at the budget's length (what is cut off is never looked at again,
// since draws are named by the round's root), may end after a number of inner rounds, and may end where q is unsure,
// and remains exact. It may not end by what an inner round did at its own last token, nor give back a token that was
// emitted.
//
// Draws of the inner round at depth m are named within(m / 8).within(m % 8) of the request's draws: no two rounds share
// any, those of the inner drafter and those of its verifier have different roles.
//
// The rows of a request are for the tokens that a model lacks when the round begins, whichever inner round asks it
// first. Besides, each model reads the tokens of the chain once.
#include <algorithm>
#include <unordered_map>

#include "drafters/confidence.h"
#include "drafters/drafters.h"
#include "drafters/parts.h"
#include "framework/cache/draft_readback.h"
#include "framework/components/round_model.h"

namespace foretoken {
namespace {

struct CascadeOptions {
  int length, nodes, rounds;  // levels and nodes of an inner tree; inner rounds, kMaxPath: no bound
  std::optional<float> temperature;
  // Of the inner round that has `left` tokens to find. The middle model adds one to what the inner drafter finds.
  Budget inner(int left) const {
    const int depth = std::min(length, left - 1);
    return Budget{nodes > 0 ? nodes : depth + 1, depth}.or_root();
  }
};

OwnModel middle_of(const nlohmann::json& o, Host& host) {
  if (!o.at("middle").is_null()) return host.own_model(o.at("middle"));
  return {host.cache(host.load(ModelChoice::read(o.at("model"))))};
}

CascadeOptions cascade_options(const nlohmann::json& o) {
  const nlohmann::json& nodes = o.at("nodes");
  const CascadeOptions all{o.at("length").get<int>(), nodes.is_null() ? 0 : nodes.get<int>(),
                           o.at("rounds").is_null() ? kMaxPath : o.at("rounds").get<int>(),
                           read_draft_temperature(o, "cascade")};
  if (all.nodes > 0 && all.nodes <= all.length)
    throw Error("the drafter 'cascade' gives an inner tree " + std::to_string(all.nodes) +
                " nodes, its root included, for " + std::to_string(all.length) +
                " levels; raise 'nodes' above 'length'");
  return all;
}

class Cascade : public Drafter {
 public:
  Cascade(Host& host, const nlohmann::json& o)
      : backend_(host.backend()),
        options_(cascade_options(o)),
        inner_(host, nlohmann::json::array({o.at("inner")})),
        own_(middle_of(o, host)),
        middle_(host, own_.model),
        verifier_(host.verifier(o.at("verifier"))),
        soundness_(host.soundness_of(o.at("verifier"))),
        verifier_name_("the verifier '" + o.at("verifier").at("name").get<std::string>() + "'"),
        confidence_(backend_),
        readback_(backend_),
        trials_staging_(backend_),
        verdicts_staging_(backend_) {
    caches_.assign(inner_.caches(0).begin(), inner_.caches(0).end());
    expect_sound();
  }

  // Nobody hears of inner trees: what learns from outcomes is no inner drafter (Needs::below_drafts).
  void observe_step(const StepReport& report) override { inner_.observe_step(report); }
  std::string notice() const override { return inner_.notice(); }
  void forget(const Sequence& sequence) override {
    paths_.erase(sequence.id), own_.forget(sequence), inner_.forget(sequence);
  }

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    std::vector<DraftRequest> served(requests.begin(), requests.end());
    own_.before(served);
    std::vector<Chain> open;
    std::vector<DraftRequest> reading;  // whose models only read tokens that their caches lack
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const DraftRequest& r = requests[i];
      if (!can_read(served[i])) {
        reading.push_back(r);
        reading.back().budget = Budget{}.or_root();
      } else if (take_pages(r)) {
        open.push_back({&r, &trees[i], &path_of(*r.sequence), middle_.budget(r).chain()});
      }
    }
    for (int round = 0; round < options_.rounds && !(open.empty() && reading.empty()); ++round) {
      extend(open, reading);
      reading.clear();
    }
    return trees;
  }

 private:
  // A chain that grows in this call.
  struct Chain {
    const DraftRequest* request;
    DraftTree* tree;
    Sequence* path;  // the request's sequence and the chain's tokens
    int length;      // the most tokens
    int drawn() const { return tree->nodes - 1; }
    int left() const { return length - drawn(); }
  };

  void expect_sound() const {
    if (!soundness_.exact())
      throw Error(verifier_name_ + " of the drafter 'cascade' promises \"" + soundness_.promise +
                  "\", so that its tokens would not come from the model's distribution; choose an exact one");
    for (const Drawn d : inner_.needs(0).proposes)
      if (std::ranges::find(soundness_.takes, d) == soundness_.takes.end())
        throw Error(verifier_name_ + " of the drafter 'cascade' is not sound for " + inner_.who(0) +
                    ", whose nodes are drawn '" + name_of(d) + "'; choose another verifier or inner drafter");
  }

  template <class Has> bool all_models(const Has& has) const {
    return std::ranges::all_of(caches_, [&](const auto& c) { return has(*c); }) && has(*own_.model);
  }

  // Whether all models can read up to the root in this step. What reads of the target drafts from the second round on.
  bool can_read(const DraftRequest& r) const {
    return r.rows > 0 && middle_.budget(r).drafts() && !without(*own_.model, r) && all_models([&](CachedModel& model) {
             const bool views = !model.cache().keeps();
             return without(model, r) || int(model.unseen(*r.sequence).size()) <= (views ? 1 : r.rows);
           });
  }

  // Takes the pages of the missing tokens, of the chain and of an inner chain for all models. What lacks some is
  // decided before anything is drawn, and so it is in an inner round whose tree needs more: the chain then ends.
  bool take_pages(const DraftRequest& r) const {
    const int length = middle_.budget(r).chain(), rows = length + options_.inner(length).depth + 1;
    return all_models([&](CachedModel& model) {
      return without(model, r) || model.reserve(*r.sequence, int(model.unseen(*r.sequence).size()) + rows);
    });
  }

  // There is no use for this model in this step, whatever pages there are.
  static bool without(CachedModel& model, const DraftRequest& r) {
    return !model.fits(*r.sequence) || (!model.cache().keeps() && r.sequence->generated() == 0);
  }

  // The copy of a sequence to which its chain is appended. Only what is new is copied.
  Sequence& path_of(const Sequence& s) {
    const auto [at, fresh] = paths_.try_emplace(s.id);
    Sequence& path = at->second;
    const int kept = fresh || s.length() < path.verified ? 0 : path.verified;
    if (kept == 0) path = s, path.limits.stop = {};
    path.tokens.resize(std::size_t(kept > 0 ? kept : s.length()));
    path.tokens.insert(path.tokens.end(), s.tokens.begin() + path.length(), s.tokens.end());
    path.tally = s.tally, path.verified = s.length();
    return path;
  }

  // One inner round of all open chains. Those that are complete, or end, are open no more.
  void extend(std::vector<Chain>& open, std::span<const DraftRequest> reading) {
    std::vector<DraftRequest> asked, judged;
    for (const Chain& c : open) {
      asked.push_back(inner_request(c));
      judged.push_back(asked.back());
      judged.back().budget = {c.left() + asked.back().budget.nodes, c.left()};
      judged.back().rows = rows_of(c);
    }
    for (const DraftRequest& r : reading) asked.push_back(r), judged.push_back(r);
    std::vector<DraftTree> found = inner_.draft_as_named(0, asked);
    for (std::size_t k = 0; k < open.size(); ++k)
      if (std::ranges::any_of(caches_, [&](const auto& c) { return c->lacked_pages(*open[k].path); }))
        judged[k].budget = Budget{}.or_root();
    const auto nodes = [&](const DraftRequest& r) {
      const DraftTree& tree = found[std::size_t(&r - judged.data())];
      // The shape may follow from its own draws, which must not decide that the chain goes on.
      return draws(tree) && inner_.needs(0).waits ? r.budget.nodes - r.budget.depth : tree.nodes;
    };
    const auto [segments, active] = middle_.begin(judged, found, nodes);
    if (segments.empty()) return open.clear();
    const Output out = middle_.run(segments);
    std::vector<Chain> fed;
    std::vector<DraftTree> trees;
    for (const int i : active) fed.push_back(open[std::size_t(i)]), trees.push_back(std::move(found[std::size_t(i)]));
    open.clear();
    if (!fed.empty()) judge(fed, trees, asked, active, out, open);
  }

  // What a model may read of a path that the inner rounds before have extended.
  // A model that no round before has asked lacks what it lacked at first, too.
  static int rows_of(const Chain& c) { return c.request->rows + c.drawn(); }

  DraftRequest inner_request(const Chain& c) const {
    DraftRequest r = *c.request;
    const std::uint32_t depth = std::uint32_t(c.drawn());
    r.sequence = c.path, r.budget = options_.inner(c.left());
    r.draws = r.draws.within(depth / Draws::kComponents).within(depth % Draws::kComponents);
    r.rows = r.budget.drafts() || depth == 0 ? rows_of(c) : 0;
    return r;
  }

  void judge(std::vector<Chain>& fed, std::span<DraftTree> trees, std::span<const DraftRequest> asked,
             std::span<const int> active, const Output& out, std::vector<Chain>& open) {
    std::vector<DistributionAfter> rows;
    std::vector<float> least;
    std::vector<Draws> draws;
    std::vector<std::uint32_t> positions;
    std::vector<SequenceId> ids;
    for (std::size_t k = 0; k < fed.size(); ++k) {
      const Sequence& path = *fed[k].path;
      for (int n = 0; n < trees[k].nodes; ++n)
        rows.push_back({&path, &trees[k], n, draft_warp(path, options_.temperature)}),
            least.push_back(fed[k].request->budget.confidence);
      draws.push_back(asked[std::size_t(active[k])].draws);
      positions.push_back(std::uint32_t(path.length())), ids.push_back(path.id);
    }
    const Distributions q = middle_.distributions(out, rows);
    const Distributions raw =
        soundness_.raw ? backend_.distributions(q.logits, std::vector<Warp>(rows.size(), Warp{1})) : Distributions();
    const std::vector<bool> sure = confidence_.sure(q, rows, least);
    const Trials trials(backend_, trees, q, draws, positions, trials_staging_, raw);
    const Tensor verdicts = verify(trials, ids);
    int row = 0;
    for (std::size_t k = 0; k < fed.size(); row += trees[k].nodes, ++k) {
      const auto& verdict = *reinterpret_cast<const Verdict*>(verdicts.row<std::uint8_t>(std::int64_t(k)));
      expect_tokens(trees[k], q.vocab(), inner_.who(0));
      expect_verdict(verdict, trees[k], q.vocab(), verifier_name_);
      if (take(fed[k], verdict, q, sure, row)) open.push_back(fed[k]);
    }
  }

  // The verdicts on the host, where all trees then know their tokens.
  Tensor verify(const Trials& trials, std::span<const SequenceId> ids) {
    const Tensor decided = backend_.allocate({trials.count(), std::int64_t(sizeof(Verdict))}, DType::u8);
    verifier_->verify(backend_, trials, decided);
    verdicts_staging_.begin(decided.bytes() + trials.tokens().bytes() + 2 * Staging::kAlignment);
    const Tensor verdicts = verdicts_staging_.array(decided.shape(), DType::u8).host,
                 tokens = verdicts_staging_.array(trials.tokens().shape(), DType::i32).host;
    backend_.fetch(decided, verdicts), backend_.fetch(trials.tokens(), tokens);
    readback_.fetch(ids, trials.trees(), caches_);
    backend_.synchronize();
    readback_.store();
    std::int64_t node = 0;
    for (const DraftTree& t : trials.trees()) {
      std::copy_n(tokens.row<Token>(node), t.nodes, t.known.data<Token>());
      node += t.nodes;
    }
    return verdicts;
  }

  // Appends what an inner round emitted; its tree's root has row `root` of q. Whether the chain goes on.
  bool take(const Chain& c, const Verdict& v, const Distributions& q, const std::vector<bool>& sure, int root) const {
    // A chain without what this round has emitted would depend on it.
    if (v.next < 0)
      throw Error("the model " + middle_.info().name + " or " + inner_.who(0) +
                  " of the drafter 'cascade' gave probabilities that are not finite; give its weights another type");
    for (int k = 0; k <= v.length && c.left() > 0; ++k) {
      const int row = root + (k > 0 ? v.path[k - 1] : 0);
      if (!sure[std::size_t(row)]) return false;
      c.tree->guess(c.drawn(), v.tokens[k], Drawn::chain);
      c.tree->q.distributions.push_back(q.slice(row, 1));
      c.path->tokens.push_back(v.tokens[k]), c.path->tally.add(v.tokens[k]);
    }
    return c.left() > 0;
  }

  Backend& backend_;
  CascadeOptions options_;
  Parts inner_;
  OwnModel own_;  // the middle model
  RoundModel middle_;
  std::vector<std::shared_ptr<CachedModel>> caches_;  // of the inner drafter
  std::unique_ptr<Verifier> verifier_;
  Soundness soundness_;
  std::string verifier_name_;
  Confidence confidence_;
  DraftReadback readback_;
  Staging trials_staging_, verdicts_staging_;
  std::unordered_map<SequenceId, Sequence> paths_;
};

void unite_cascade(Needs&, std::span<const Needs> parts, const nlohmann::json& o) {
  const Needs& inner = parts.front();
  const std::string name = o.at("inner").at("name").dump();
  if (!inner.below_drafts || inner.ranks > 0 || !inner.hidden.empty())
    throw Error("the drafter 'cascade' has the inner drafter " + name +
                ", which cannot draft below tokens that the target has not verified (Needs::below_drafts); choose a "
                "lookup without memory, a draft model, or a part of the target");
  if (parts.size() > 1 && (parts[1].ranks > 0 || !parts[1].hidden.empty() || parts[1].learns))
    throw Error("the drafter 'cascade' has the middle model of " + o.at("middle").at("name").dump() +
                ", which reads states or outcomes of the target that a path of draft tokens lacks; choose another");
  // Both would write rows of the same path behind the target's, each over the other's.
  if (inner.views_target && parts.size() > 1 && parts[1].views_target)
    throw Error("the drafter 'cascade' has the inner drafter " + name + " and the middle model of " +
                o.at("middle").at("name").dump() +
                ", which both draft in the target's cache, where one alone has room; choose another inner drafter");
  if (const Budget given = cascade_options(o).inner(kMaxPath + 1);
      given.nodes < inner.whole.nodes || given.depth < inner.whole.depth)
    throw Error("the drafter 'cascade' has the inner drafter " + name + " with a shape of " +
                std::to_string(inner.whole.nodes) + " nodes (the root included) and " +
                std::to_string(inner.whole.depth) + " levels, but gives it " + std::to_string(given.nodes) + " and " +
                std::to_string(given.depth) + "; raise 'nodes' and 'length'");
}

std::vector<Option> options_of_cascade() {
  std::vector<Option> all = with_model(
      {{"inner", "drafter", nullptr, "drafts for the model, below the chain so far"},
       {.name = "middle",
        .type = "drafter",
        .standard = nullptr,
        .meaning = "a drafter whose model, a part of the target, is the middle one; it draws no trees of its own",
        .optional = true,
        .model_alone = true},
       {"verifier", "verifier", nullptr, "by which the model judges inner trees; an exact one"},
       {"length", "integer", 4, "the most levels of an inner tree", false, 1, kMaxPath},
       {"nodes", "integer", nullptr, "the most nodes of an inner tree, its root included; null: length + 1", true, 2,
        kMaxNodes},
       {"rounds", "integer", nullptr, "the most inner rounds of a round; null: until the budget is full", true, 1,
        kMaxPath},
       draft_temperature()});
  all.front().instead = "middle", all.front().meaning += "; or 'middle' in its place";
  return all;
}

}  // namespace

Entry<Drafter> cascade() {
  const nlohmann::json lookup{{"name", "ngram"}, {"longest", 2}, {"shortest", 1}}, model{{"name", "draft_model"}},
      tree{{"name", "draft_tree"}, {"shape", {2, 1}}, {"draws", "certain"}, {"cut", true}},
      sampling{{"name", "speculative_sampling"}}, few_pages{{"name", "window"}, {"sinks", 1}, {"window", 2}},
      selected_pages{{"name", "quest"}, {"budget", 2}},
      attended_pages{{"name", "snapkv"}, {"budget", 4}, {"sinks", 1}, {"window", 2}, {"observe", 3}, {"every", 2}};
  return {.summary = "a chain of a middle model, for which another drafter drafts",
          .source = "arXiv 2308.04623, 2312.11462, 2404.11912",
          .options = options_of_cascade(),
          .make = [](const nlohmann::json& o, Host& host) { return std::make_unique<Cascade>(host, o); },
          .traits =
              [](const nlohmann::json& o, const ModelInfo&) {
                expect_nesting(o);
                (void)cascade_options(o);
                return Needs{.proposes = {Drawn::chain}, .confidence = true, .waits = true};
              },
          .examples = {{{"inner", lookup}, {"verifier", sampling}, {"length", 2}},
                       {{"inner", model}, {"verifier", sampling}, {"length", 1}, {"rounds", 2}},
                       {{"inner", tree},
                        {"verifier", {{"name", "target_match"}}},
                        {"length", 2},
                        {"nodes", 4},
                        {"temperature", 0.5}},
                       {{"inner", model}, {"verifier", {{"name", "coupled"}}}, {"length", 2}},
                       {{"inner", model}, {"middle", few_pages}, {"verifier", sampling}, {"length", 2}},
                       {{"inner", lookup}, {"middle", selected_pages}, {"verifier", sampling}, {"length", 2}},
                       {{"inner", tree},
                        {"middle", selected_pages},
                        {"verifier", {{"name", "target_match"}}},
                        {"length", 2},
                        {"nodes", 4}},
                       {{"inner", model}, {"middle", attended_pages}, {"verifier", {{"name", "coupled"}}}}},
          .unite = unite_cascade};
}

}  // namespace foretoken
