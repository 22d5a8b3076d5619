// limits, the target as its own draft: which refusals are held against a verifier where a drafter guesses beside its
// draws. Guesses of these drafters come from elsewhere: they are never the most probable token.
#include <gtest/gtest.h>

#include "experiments/conformance/laws.h"

namespace foretoken::test {

using namespace conformance;

namespace {

using nlohmann::json;

const TableModel::Options kTarget{.vocab = 5, .seed = 71};

// The families of a tree, of guesses (g) and i.i.d. draws (d): of the root, then of its first child. "gd/dd": a guess
// and a draw, below the guess two draws.
struct Families {
  std::string at_even_lengths, at_odd_lengths;
};

// Drafts from the target itself.
class Twin : public Drafter {
 public:
  Twin(Backend& backend, Families families)
      : backend_(backend), families_(std::move(families)), target_(kTarget), vocab_(kTarget.vocab) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      const DraftRequest& r = requests[i];
      Tokens path = r.sequence->tokens;
      const std::string& all = r.sequence->length() % 2 ? families_.at_odd_lengths : families_.at_even_lengths;
      const std::size_t end = std::min(all.find('/'), all.size());
      add(r, all.substr(0, end), 0, path, trees[i]);
      if (end == all.size() || r.budget.depth < 2 || trees[i].nodes < 2) continue;
      path.push_back(*trees[i].tokens.row<Token>(1));
      add(r, all.substr(end + 1), 1, path, trees[i]);
    }
    return trees;
  }

 private:
  void add(const DraftRequest& r, const std::string& family, int parent, const Tokens& path, DraftTree& tree) {
    const Warp warp = r.sequence->sampling.warp();
    const Tensor logits = Tensor::host_copy(target_.logits(path), DType::f32).reshaped({1, vocab_});
    const Distributions q = backend_.distributions(backend_.upload(logits), {&warp, 1});
    for (const char kind : family) {
      if (tree.nodes >= r.budget.nodes) return;
      if (kind == 'g') {
        tree.guess(parent, (q[0].row.greedy + 1) % vocab_);
        continue;
      }
      TokenDraw draw = r.draw(tree.nodes, parent + 1);
      draw.to = tree.tokens.row<Token>(tree.nodes);
      backend_.draw(q, {&draw, 1}, {});
      tree.grow(parent, Drawn::independent);
      tree.q.distributions.resize(std::size_t(parent) + 1);
      tree.q.distributions.back() = q;
    }
  }

  Backend& backend_;
  Families families_;
  TableModel target_;
  int vocab_;
};

// Refuses all but the first child. Exact, and it does not say Soundness::first_children.
struct FirstChildAlone {
  template <class Lane> Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      const int c = t.child(node, node);
      auto r = lane.open(t.p(node), t.q(node));
      if (c < 0 || !lane.accept(t.certain(c) ? r(t.tokens[c]) : r(t.tokens[c]) / t.q(node)(t.tokens[c]),
                                {Role::accept, std::uint32_t(c), 0})) {
        if (c >= 0 && t.certain(c)) lane.reject_guess(r, t.tokens[c]);
        if (c >= 0 && !t.certain(c)) lane.reject_draw(r);
        v.finish(lane.draw(r, {Role::residual, std::uint32_t(node), 0}));
        return v;
      }
      v.follow(node = c, t.tokens[c]);
    }
  }
};

Registries registries_with(const Families& families) {
  Registries all = all_registries();
  all.drafters.add(
      "twin", {"",
               "",
               {},
               [=](const json&, Host& h) { return std::make_unique<Twin>(h.backend(), families); },
               [](const json&, const ModelInfo&) { return Needs{.proposes = {Drawn::certain, Drawn::independent}}; }});
  // Accepts a draw with the sum of p q, and says that it accepts as often as may be.
  Entry<Verifier> match = all.verifiers.entries().at("target_match");
  match.traits = [](const json&, const ModelInfo&) {
    return Soundness{.takes = {Drawn::certain, Drawn::independent}, .acceptance = Acceptance::overlap};
  };
  all.verifiers.add("match", match);
  for (const bool says : {false, true})
    all.verifiers.add(says ? "first, as it says" : "first",
                      {"",
                       "",
                       {},
                       [](const json&, Host&) { return std::make_unique<RuleVerifier<FirstChildAlone>>(); },
                       [says](const json&, const ModelInfo&) {
                         return Soundness{.takes = {Drawn::certain, Drawn::independent}, .first_children = says};
                       }});
  return all;
}

Finding twin(const Families& families, const std::string& verifier, float temperature) {
  ReferenceBackend backend;
  const Subject subject{registries_with(families),
                        {{{"name", "twin"}}, {{"name", "fixed"}, {"length", 4}}, {{"name", verifier}}}};
  return twin_accepts_all({subject,
                           {.sampling = {.temperature = temperature}, .engine = {.pages = 512}},
                           backend,
                           table_models(kTarget),
                           random_requests(20, kTarget.vocab, 12, 30, 1)});
}

constexpr const char* kExact[] = {"speculative_sampling", "k_seq", "traversal_verification"};

TEST(Twins, DrawsAreAcceptedAndGuessesBesideThemByChance) {
  for (const char* verifier : kExact)
    for (const Families& families : {Families{"dd", "d"}, {"gd", "dd"}, {"dg/dd", "d/dd"}, {"g", "dd"}, {"d/gd", "dd"}})
      for (const float temperature : {0.0f, 1.0f}) {
        const Finding f = twin(families, verifier, temperature);
        EXPECT_TRUE(f.holds) << f.what << ", " << families.at_even_lengths << ", temperature " << temperature;
        EXPECT_GT(f.cases, 200);
      }
}

TEST(Twins, OfWholePathsADrawIsNotRefusedForAGuessAboveOrBelowIt) {
  for (const char* verifier : {"traversal_verification", "multi_path_block"}) {
    const Finding f = twin({"g/dd", "dd/gd"}, verifier, 1);
    EXPECT_TRUE(f.holds) << f.what;
    EXPECT_GT(f.rejected, 0);
  }
}

TEST(Twins, AGuessExcusesItsOwnFamilyAlone) {
  for (const Families& families : {Families{"dd", "d"}, {"gd", "dd"}, {"g", "dd"}, {"gd/dd", "gd/d"}}) {
    const Finding f = twin(families, "match", 1);
    EXPECT_FALSE(f.holds) << families.at_even_lengths;
    EXPECT_NE(f.why.find("were refused"), std::string::npos) << f.why;
  }
  EXPECT_TRUE(twin({"gd", "gdd"}, "match", 1).holds) << "every family has a guess";
}

// Of draws alone the first one is accepted, and above temperature 0 a guess excuses its siblings.
TEST(Twins, AtTemperatureZeroADrawBesideAGuessIsTheTargetsOwnToken) {
  EXPECT_FALSE(twin({"gd", "dd"}, "first", 0).holds);
  EXPECT_TRUE(twin({"gd", "dd"}, "first", 1).holds);
  EXPECT_TRUE(twin({"gd", "dd"}, "first, as it says", 0).holds) << "the draw is as if absent";
}

TEST(Twins, AtTemperatureZeroGuessesAreTheModelsWhereNothingIsDrawn) {
  EXPECT_FALSE(twin({"g", "g"}, "speculative_sampling", 0).holds);
  EXPECT_TRUE(twin({"g", "d"}, "speculative_sampling", 0).holds);
  EXPECT_TRUE(twin({"g", "g"}, "speculative_sampling", 1).holds);
}

}  // namespace
}  // namespace foretoken::test
