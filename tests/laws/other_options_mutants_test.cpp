// Planted bugs of drafters and verifiers that show at other options than the defaults, in deep and in large trees, or
// on several threads alone, each killed by the scenario that the test names, as `foretoken check` runs it. The same
// component without the bug holds.
#include <gtest/gtest.h>

#include "experiments/conformance/components.h"
#include "experiments/conformance/law_table.h"
#include "tests/support/states.h"

namespace foretoken::test {

using namespace conformance;

namespace other_options_mutants {

using nlohmann::json;

// "scenario: why" of the first scenario that fails, of those without penalties; empty if none does.
std::string broken(const std::string& law, const Candidate& candidate) {
  for (const LawCase& c : std::ranges::find(kit_laws(), law, &KitLaw::name)->cases(candidate, {}))
    if (c.scenario.find("penalties") == std::string::npos)
      if (const Finding f = c.run(); !f.holds) return c.scenario + ": " + f.why;
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(OtherOptions, AreBothEndsOfTheDeclaredRangeAndValuesBetween) {
  const std::vector<Option> options{{"width", "integer", 3, "", false, 1, 40},
                                    {"cut", "boolean", false, ""},
                                    {"free", "number", 1, ""},
                                    {"share", "number", 0.5, "", false, 0, 1}};
  const json given{{"width", 3}, {"cut", false}, {"free", 1}, {"share", 0.5}};
  std::vector<json> widths, shares;
  for (const json& other : other_options(options, given)) {
    EXPECT_EQ(other["free"], 1) << "its range is not declared";
    if (other["share"] == 0.5 && other["width"] != 3) widths.push_back(other["width"]);
    if (other["width"] == 3 && other["share"] != 0.5) shares.push_back(other["share"]);
  }
  for (const int width : {1, 2, 4, 6, 40}) EXPECT_NE(std::ranges::find(widths, json(width)), widths.end()) << width;
  for (const double share : {0.0, 0.25, 1.0}) EXPECT_NE(std::ranges::find(shares, json(share)), shares.end());
  for (const double third : {0.0, 1.0 / 3, 2.0 / 3})
    EXPECT_TRUE(std::ranges::any_of(shares, [&](const json& x) { return x > third && x < third + 1.0 / 3; })) << third;
}

enum class Fault {
  none,
  warmer_below_level_16,
  names_of_128_nodes,
  seed_of_its_own,
  second_branch_as_first_from_width_4,
  cut_by_its_own_token_from_width_4
};

// A tree whose nodes have `width` children each, drawn independently, level by level.
class Wide : public Drafter {
 public:
  Wide(Host& host, Fault fault, std::shared_ptr<Model> model, int width)
      : backend_(host.backend()),
        table_(static_cast<const TableModel&>(*model).options()),
        fault_(fault),
        width_(width) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i) grow(requests[i], trees[i]);
    return trees;
  }

 private:
  void grow(const DraftRequest& r, DraftTree& tree) {
    std::vector<Tokens> paths{r.sequence->tokens};
    for (int parent = 0; parent < tree.nodes; ++parent) {
      const Tokens path = paths[std::size_t(parent)];
      const int level = int(path.size()) - r.sequence->length() + 1;
      if (!r.budget.drafts() || level > r.budget.depth || tree.nodes == r.budget.nodes) break;
      tree.q.distributions.resize(std::size_t(parent));
      // Of a chain it grows one child each, so that it becomes deep.
      for (int k = 0; k < (r.budget.nodes == r.budget.depth + 1 ? 1 : width_) && tree.nodes < r.budget.nodes; ++k)
        if (add(r, tree, parent, path, level, k)) paths.push_back(path), paths.back().push_back(token(tree));
    }
  }
  static Token token(const DraftTree& tree) { return *tree.tokens.row<Token>(tree.nodes - 1); }
  bool add(const DraftRequest& r, DraftTree& tree, int parent, const Tokens& path, int level, int k) {
    const bool first = fault_ == Fault::second_branch_as_first_from_width_4 && width_ >= 4 && level == 2 && parent == 2;
    Tokens context = path;
    if (first) context.back() = *tree.tokens.row<Token>(1);
    Warp warp = r.sequence->sampling.warp();
    const Distributions q = after(context, warp);
    const int node = tree.nodes;
    TokenDraw draw = r.draw(fault_ == Fault::names_of_128_nodes ? node % 128 : node, level, k);
    if (fault_ == Fault::seed_of_its_own) draw.draws.seed = 1;
    draw.to = tree.tokens.row<Token>(node);
    backend_.draw(q, {&draw, 1}, {});
    if (fault_ == Fault::cut_by_its_own_token_from_width_4 && width_ >= 4 && k > 2 && *draw.to == 0) return false;
    if (fault_ == Fault::warmer_below_level_16 && level > 16) warp.temperature *= 1.01f;
    if (k == 0) tree.q.distributions.push_back(after(context, warp));
    tree.grow(parent, Drawn::independent);
    return true;
  }
  Distributions after(const Tokens& context, const Warp& warp) const {
    const Tensor logits = Tensor::host_copy(table_.logits(context), DType::f32).reshaped({1, table_.info().vocab});
    return backend_.distributions(logits, {&warp, 1});
  }

  Backend& backend_;
  TableModel table_;
  Fault fault_;
  int width_;
};

Candidate wide(Fault fault) {
  Registries registries = all_registries();
  registries.drafters.add("wide",
                          {"",
                           "",
                           {{"model", "model", nullptr, ""}, {"width", "integer", 2, "", false, 1, 12}},
                           [=](const json& o, Host& h) {
                             return std::make_unique<Wide>(h, fault, h.load(ModelChoice::read(o.at("model"))),
                                                           o.at("width").get<int>());
                           },
                           [](const json&, const ModelInfo&) { return Needs{.proposes = {Drawn::independent}}; }});
  const json drafter{{"name", "wide"}, {"model", "table:other"}};
  return candidate({registries, {drafter, {{"name", "fixed"}, {"length", 4}}, {{"name", "speculative_sampling"}}}},
                   false);
}

TEST(OtherOptions, ThatADrafterRefusesAsItIsMadeAreLeftOut) {
  const json drafter{{"name", "ngram"}};
  const Candidate c =
      candidate({all_registries(), {drafter, {{"name", "fixed"}, {"length", 4}}, {{"name", "target_match"}}}}, false);
  EXPECT_GT(with_other_options(c).size(), 4u);
  for (const OtherCandidate& other : with_other_options(c)) {
    const json& o = other.candidate.subject.configs.drafter;
    EXPECT_LE(o.at("shortest"), o.at("longest")) << other.options;
  }
}

TEST(OtherOptions, ADrafterWithoutAFaultHolds) {
  for (const char* law : {"causal", "limits", "memory"}) EXPECT_EQ(broken(law, wide(Fault::none)), "") << law;
}

TEST(OtherOptionsMutants, AWarmerQBelowLevel16IsKilledByBudgetsOfAllSizes) {
  const std::string why = broken("causal", wide(Fault::warmer_below_level_16));
  EXPECT_TRUE(has(why, "budgets of all sizes: sequence ") && has(why, "at level 17")) << why;
}

TEST(OtherOptionsMutants, NamesThatComeAgainAfter128NodesAreKilledByBudgetsOfAllSizes) {
  const std::string why = broken("causal", wide(Fault::names_of_128_nodes));
  EXPECT_TRUE(has(why, "two draws of one call have the name node ")) << why;
}

TEST(OtherOptionsMutants, ASeedOfItsOwnIsKilledByBudgetsOfAllSizes) {
  const std::string why = broken("causal", wide(Fault::seed_of_its_own));
  EXPECT_TRUE(has(why, "with the seed and the stream of DraftRequest::draws")) << why;
}

TEST(OtherOptionsMutants, TreesThatAreWrongFromWidth4OnAreKilledAtThatWidth) {
  const std::string drawn = broken("limits", wide(Fault::second_branch_as_first_from_width_4));
  EXPECT_TRUE(has(drawn, "\"width\":") && has(drawn, "from another distribution than the target's")) << drawn;
  const std::string cut = broken("causal", wide(Fault::cut_by_its_own_token_from_width_4));
  EXPECT_TRUE(has(cut, "\"width\":") && has(cut, "depends on its own token")) << cut;
}

enum class RuleFault { none, in_static, too_often_below_a_third, too_often_between, names_of_128_nodes, at_64 };

// Speculative sampling on chains and trees of independent draws and guesses, with lenience.
struct Lenient {
  double lenience;
  RuleFault fault;
  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    static Verdict shared;
    Verdict own;
    Verdict& v = fault == RuleFault::in_static ? shared : own;
    v.length = 0;
    const bool between = fault == RuleFault::too_often_between && lenience > 0.6 && lenience < 0.8,
               below = fault == RuleFault::too_often_below_a_third && lenience < 0.33,
               at_64 = fault == RuleFault::at_64 && t.position % 64 == 0;
    for (int node = 0;;) {
      auto r = lane.open(t.p(node), t.q(node));
      int chosen = -1;
      for (int c = t.child(node, node); c >= 0 && chosen < 0; c = t.child(node, c)) {
        const Token x = t.tokens[c];
        const double ratio =
            r(x) / (lenience * (t.certain(c) ? 1 : t.q(node)(x))) * (between || below || at_64 ? 1.1 : 1);
        const int name = fault == RuleFault::names_of_128_nodes ? c % 128 : c;
        if (lane.accept(ratio, {Role::accept, std::uint32_t(name), 0}))
          chosen = c;
        else if (t.certain(c))
          lane.reject_guess(r, x);
        else
          lane.reject_draw(r);
      }
      if (chosen < 0) {
        v.finish(lane.draw(r, {Role::residual, std::uint32_t(node), 0}));
        return v;
      }
      v.follow(node = chosen, t.tokens[chosen]);
    }
  }
};

// What the rule emits from `node` on, after `path`, with probability `weight`.
void emit(const Round& round, double lenience, int node, double weight, Tokens path, EmittedLaw& law) {
  std::vector<double> r = round.p[std::size_t(node)];
  for (const int c : round.children(node)) {
    const std::size_t x = std::size_t(round.tokens[std::size_t(c)]);
    const bool guess = round.drawn[std::size_t(c)] == Drawn::certain;
    const std::vector<double>& q = round.q[std::size_t(node)];
    const double accepted = std::min(1.0, r[x] / (lenience * (guess ? 1 : q[x])));
    path.push_back(Token(x));
    if (accepted > 0) emit(round, lenience, c, weight * accepted, path, law);
    path.pop_back();
    weight *= 1 - accepted;
    if (weight <= 0) return;
    double mass = 0;
    for (std::size_t y = 0; y < r.size(); ++y) mass += r[y] = guess ? (y == x ? 0 : r[y]) : std::max(0.0, r[y] - q[y]);
    for (double& of : r) of /= mass;
  }
  path.push_back(0);
  for (Token& last = path.back(); last < int(r.size()); ++last)
    if (r[std::size_t(last)] > 0) law[path] += weight * r[std::size_t(last)];
}

Candidate lenient(RuleFault fault) {
  Registries registries = all_registries();
  registries.verifiers.add(
      "lenient", {"",
                  "",
                  {{"lenience", "number", 1, "", false, 1e-6, 1}},
                  [=](const json& o, Host&) {
                    return std::make_unique<RuleVerifier<Lenient>>(Lenient{o.at("lenience").get<double>(), fault});
                  },
                  [](const json& o, const ModelInfo&) {
                    Soundness s{.takes = {Drawn::certain, Drawn::chain, Drawn::independent}};
                    const double lenience = o.at("lenience").get<double>();
                    if (lenience == 1) return s;
                    s.promise = "lossy: drafted tokens with min(1, p / (lenience q)), else a token of the residual";
                    s.acceptance = Acceptance::other;
                    s.induced = [lenience](const Round& round) {
                      EmittedLaw law;
                      emit(round, lenience, 0, 1, {}, law);
                      return law;
                    };
                    return s;
                  }});
  return candidate({registries, {{{"name", "none"}}, {{"name", "fixed"}}, {{"name", "lenient"}}}}, false);
}

TEST(OtherOptions, ARuleWithoutAFaultHolds) { EXPECT_EQ(broken("rounds", lenient(RuleFault::none)), ""); }

TEST(OtherOptionsMutants, ARuleThatIsWrongInAPartOfItsRangeIsKilledByRoundsOfThatPart) {
  for (const RuleFault fault : {RuleFault::too_often_below_a_third, RuleFault::too_often_between}) {
    const std::string why = broken("rounds", lenient(fault));
    EXPECT_TRUE(has(why, "total variation")) << int(fault) << ": " << why;
  }
}

TEST(OtherOptionsMutants, ARuleThatIsWrongAtMultiplesOf64IsKilledByRounds) {
  const std::string why = broken("rounds", lenient(RuleFault::at_64));
  EXPECT_TRUE(has(why, "random tree of ") && has(why, "total variation")) << why;
}

// The rule, whose verdict of the ninth tree of a batch and of those after it has one token less.
class Shorter : public Verifier {
 public:
  void verify(Backend& backend, const Trials& trials, Tensor verdicts) override {
    rule_.verify(backend, trials, verdicts);
    for (int i = 8; i < trials.count(); ++i)
      if (auto& v = *reinterpret_cast<Verdict*>(verdicts.row<std::uint8_t>(i)); v.length > 0)
        v.finish(v.tokens[--v.length]);
  }

 private:
  RuleVerifier<Lenient> rule_{Lenient{1, RuleFault::none}};
};

TEST(OtherOptionsMutants, AShorterVerdictInALargeBatchIsKilledByTreesJudgedAlone) {
  Candidate c = lenient(RuleFault::none);
  c.subject.registries.verifiers.replace(
      "lenient", entry_that<Verifier>(states(Soundness{.takes = {Drawn::certain, Drawn::chain, Drawn::independent}}),
                                      [](const json&, Host&) { return std::make_unique<Shorter>(); }));
  const std::string why = broken("rounds", candidate(c.subject, false));
  EXPECT_TRUE(has(why, "trees judged in a batch and alone: ")) << why;
}

TEST(OtherOptionsMutants, AVerdictInAStaticVariableIsKilledByTreesJudgedAtOnce) {
  const std::string why = broken("rounds", lenient(RuleFault::in_static));
  EXPECT_TRUE(has(why, "trees judged at once: ") && has(why, "the verdict of tree ")) << why;
}

TEST(OtherOptionsMutants, NamesThatComeAgainAfter128NodesAreKilledByRoundsOfNodesApart) {
  const std::string why = broken("rounds", lenient(RuleFault::names_of_128_nodes));
  EXPECT_TRUE(has(why, "nodes 128 apart") && has(why, "total variation")) << why;
}

}  // namespace other_options_mutants
}  // namespace foretoken::test
