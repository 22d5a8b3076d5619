// Heads that draft from the target's last state without its cache: how Medusa's levels and a tree's nodes have the same
// logits, how deep they draft, and which files are refused.
#include <gtest/gtest.h>

#include "tests/drafters/head_by_hand.h"
#include "tests/framework/model/model_folder.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

const Tokens kText{1, 7, 33, 20, 5, 60};

bool same_rows(const Tensor& a, std::int64_t i, const Tensor& b, std::int64_t j) {
  return std::equal(a.row<float>(i), a.row<float>(i) + a.dim(1), b.row<float>(j));
}

TEST(Medusa, ALevelHasTheLogitsOfEachOfItsNodes) {
  HeadByHand by_hand(cpu_backend(2));
  by_hand.open("medusa1");
  const DraftRequest r = by_hand.request(kText, 4);
  std::vector<DraftTree> trees = rooted(*by_hand.backend, {&r, 1});
  const auto one = [](const DraftRequest&) { return 1; };
  auto segments = by_hand.model->begin({&r, 1}, trees, one).segments;
  const Tensor levels = by_hand.model->run_levels(segments, 3).logits;
  EXPECT_EQ(levels.shape(), Shape({3, 96}));
  segments = by_hand.model->begin({&r, 1}, trees, one).segments;
  EXPECT_TRUE(same_rows(by_hand.model->run(segments).logits, 0, levels, 0));
  for (const Token x : {40, 9, 3}) trees[0].guess(0, x);
  const Tensor nodes = by_hand.model->run(std::vector<Segment>{{&by_hand.sequence, 0, &trees[0], 1}}).logits;
  ASSERT_EQ(nodes.dim(0), 3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_rows(nodes, i, levels, 1));
}

TEST(Medusa, DraftsAsDeepAsItHasHeads) {
  for (const char* name : {"medusa1", "hydra", "hydra_prefix"}) {
    HeadByHand by_hand(make_reference_backend());
    by_hand.open(name);
    EXPECT_EQ(by_hand.model->budget(by_hand.request(kText, 3)).depth, 3) << name;
    EXPECT_EQ(by_hand.model->budget(by_hand.request(kText, 9)).depth, 4) << name;
  }
}

TEST(Medusa, AShapeThatIsDeeperThanItsHeadsIsRefused) {
  HeadByHand by_hand(make_reference_backend());
  by_hand.open("medusa1");
  json options{{"name", "medusa"},
               {"head", (kHeads / "medusa1").string()},
               {"growth", "tree"},
               {"shape", std::vector<int>(5, 1)}};
  const auto make = [&] { by_hand.registries.drafters.make(options, by_hand.host); };
  EXPECT_TRUE(says(sentence_of(make), "'medusa' has 5 levels", "its head drafts 4", "\"cut\""));
  options["cut"] = true;
  EXPECT_NO_THROW(make());
  options["cut"] = false, options["shape"] = "mc_sim_7b_63";
  EXPECT_NO_THROW(make());
}

TEST(Medusa, HasTheHeadsOfItsFile) {
  HeadByHand by_hand(make_reference_backend());
  // Its config.json says 2, as published ones do.
  EXPECT_EQ(open_medusa((kHeads / "medusa1").string(), by_hand.models.target->info()).heads, 4);
}

TEST(Medusa, HasNoTreeBeforeTheTargetHasAState) {
  for (const char* name : {"medusa1", "hydra", "hydra_prefix"}) {
    HeadByHand by_hand(make_reference_backend());
    by_hand.open(name);
    DraftRequest r = by_hand.request(kText, 3);
    std::vector<DraftTree> trees = rooted(*by_hand.backend, {&r, 1});
    const auto active = [&] {
      return by_hand.model->begin({&r, 1}, trees, [](const DraftRequest&) { return 1; }).active.size();
    };
    r.hidden = {};
    EXPECT_EQ(active(), 0u) << name << " without states";
    r.hidden = by_hand.states->of(by_hand.sequence);
    EXPECT_EQ(active(), 1u) << name;
    by_hand.sequence.prompt_length = int(kText.size());
    EXPECT_EQ(active(), 0u) << name << " in the first round";
  }
}

// One buffer serves rounds of every number of levels, and the next round too.
TEST(Medusa, HasMemoryForTheOutputsOfOneForward) {
  for (const char* name : {"medusa1", "hydra_prefix"}) {
    HeadByHand by_hand(make_reference_backend());
    by_hand.open(name);
    for (const int levels : {1, 2, 4, 3, 1}) {
      const DraftRequest r = by_hand.request(kText, levels);
      std::vector<DraftTree> trees = rooted(*by_hand.backend, {&r, 1});
      const auto segments = by_hand.model->begin({&r, 1}, trees, [](const DraftRequest&) { return 1; }).segments;
      EXPECT_EQ(by_hand.model->run(segments).logits.dim(0), 1);
    }
    std::int64_t bytes = 0;
    for (const auto& books : by_hand.host.books()) bytes += books->output_bytes();
    // Four levels of logits; or those of the prefix's head, and its states.
    EXPECT_EQ(bytes, 4 * (std::string(name) == "medusa1" ? 4 * 96 : 96 + 64)) << name;
  }
}

// Drafters beside the head that a test feeds by hand, for two sequences at once.
struct HeadsDraft : ::testing::TestWithParam<const char*> {
  static constexpr int kLevels = 3;
  HeadByHand by_hand{make_reference_backend()};
  Sequence sequences[2];
  std::vector<DraftTree> trees;

  void draft(json options, float temperature, int nodes) {
    const std::string name = GetParam();
    by_hand.open(name);
    options["name"] = name.starts_with("medusa") ? "medusa" : "hydra", options["dtype"] = "f32";
    options["head"] = (kHeads / name).string();
    const auto drafter = by_hand.registries.drafters.make(options, by_hand.host);
    std::vector<DraftRequest> requests;
    for (int i = 0; i < 2; ++i) {
      Sequence& s = sequences[i];
      s.id = SequenceId(i + 2), s.prompt_length = 1, s.sampling.temperature = temperature;
      s.tokens = i == 0 ? kText : Tokens{1, 60, 7, 7, 52, 31, 90, 4};
      requests.push_back({&s, {nodes, kLevels}, 1 << 20, Draws{7, s.id}, false, by_hand.states->of(s)});
    }
    trees = drafter->draft(requests);
    for (const DraftTree& t : trees) EXPECT_EQ(t.nodes, nodes);
  }
  int parent(int i, int n) const { return *trees[std::size_t(i)].parents.row<std::int32_t>(n); }
  Token token(int i, int n) const {
    const DraftTree& t = trees[std::size_t(i)];
    return t.drawn_at(n) ? *t.drawn_at(n) : *t.known.row<Token>(n);
  }
  Drawn drawn(int i, int n) const { return Drawn(*trees[std::size_t(i)].q.drawn.row<std::uint8_t>(n)); }
  // The head's logits after node n of tree i, fed by hand.
  std::vector<float> after(int i, int n) {
    Tokens path;
    for (; n > 0; n = parent(i, n)) path.insert(path.begin(), token(i, n));
    const std::vector<float> logits = by_hand.round(sequences[i].tokens, path).back();
    by_hand.model->forget(by_hand.sequence), by_hand.states->forget(by_hand.sequence);
    return logits;
  }
  void expect_ranked(int i) {
    for (int n = 1, rank = 0; n < trees[std::size_t(i)].nodes; ++n) {
      EXPECT_EQ(drawn(i, n), Drawn::certain);
      for (int m = rank = 0; m < n; ++m) rank += m > 0 && parent(i, m) == parent(i, n);
      const std::vector<float> logits = after(i, parent(i, n));
      const float own = logits[std::size_t(token(i, n))];
      EXPECT_EQ(std::ranges::count_if(logits, [&](float l) { return l > own; }), rank) << i << " " << n;
    }
  }
};

TEST_P(HeadsDraft, TheMostProbableTokensOfEachNode) {
  draft({{"growth", "tree"}, {"shape", {3, 2, 1}}, {"draws", "certain"}}, 1, 16);
  for (const int i : {0, 1}) expect_ranked(i);
}

TEST_P(HeadsDraft, ThoseOfDynamicTrees) {
  draft({{"growth", "dynamic"}, {"width", 3}, {"expand", 2}}, 1, 9);
  for (const int i : {0, 1}) expect_ranked(i);
}

TEST_P(HeadsDraft, DrawsFromTheHeadsDistributions) {
  const bool marginals = std::string(GetParam()).starts_with("medusa");
  for (const char* growth : {"chain", "tree"}) {
    const bool chain = growth == std::string("chain");
    draft(chain ? json{{"growth", growth}} : json{{"growth", growth}, {"shape", {2, 2}}, {"cut", true}}, 1,
          chain ? kLevels + 1 : 7);
    for (const int i : {0, 1})
      for (int n = 1; n < trees[std::size_t(i)].nodes; ++n) {
        EXPECT_EQ(drawn(i, n), marginals ? Drawn::marginals : chain ? Drawn::chain : Drawn::independent);
        const std::vector<float> logits = after(i, parent(i, n));
        const Distribution q = trees[std::size_t(i)].q.distributions[std::size_t(parent(i, n))][0];
        double sum = 0;
        for (const float l : logits) sum += std::exp(double(l));
        for (Token x = 0; x < q.vocab; ++x)
          EXPECT_NEAR(q(x), std::exp(double(logits[std::size_t(x)])) / sum, 1e-5) << growth << " " << i << " " << n;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(All, HeadsDraft, testing::Values("medusa1", "medusa2", "hydra", "hydra_prefix"),
                         [](const auto& instance) { return std::string(instance.param); });

struct MedusaFilesOf : ::testing::Test {
  HeadByHand by_hand{make_reference_backend()};
  ModelInfo target = by_hand.models.target->info();
  std::string medusa(const std::string& path) {
    return sentence_of(
        [&] { MedusaHeads(*by_hand.backend, open_medusa(path, target), by_hand.host.ends(), target, "f32"); });
  }
  std::string hydra(const std::string& path) {
    return sentence_of([&] { open_hydra(path, target, 1e-6); });
  }
};

TEST_F(MedusaFilesOf, AnotherTargetAreRefused) {
  target.width = 48;
  EXPECT_TRUE(says(medusa((kHeads / "medusa1").string()), "states of 64 numbers", "have 48", "another target"));
  EXPECT_TRUE(says(hydra((kHeads / "hydra").string()), "states of 64 numbers", "states of 48", "another target"));
  target.width = 64, target.vocab = 90;
  EXPECT_TRUE(says(medusa((kHeads / "medusa1").string()), "0.1.weight", "[96, 64]", "[90, 64]"));
  EXPECT_TRUE(says(hydra((kHeads / "hydra_prefix").string()), "know 96 tokens", "90 tokens", "another target"));
}

TEST_F(MedusaFilesOf, AnotherKindAreListed) {
  EXPECT_TRUE(says(medusa((kHeads / "eagle1").string()), "no Medusa heads", "fc.weight", "of its own kind"));
  EXPECT_TRUE(says(medusa((kHeads / "hydra").string()), "no Medusa heads", "hydra_lm_head.0.weight", "others"));
  EXPECT_TRUE(says(hydra((kHeads / "medusa1").string()), "no Hydra heads", "0.0.linear.weight", "of its own kind"));
}

TEST_F(MedusaFilesOf, UnknownTensorsAreListed) {
  ModelFolder folder("medusa2", "heads");
  folder.add("medusa_head.0.9.weight", {96, 64});
  EXPECT_TRUE(says(medusa(folder.write().string()), "which has no tensors medusa_head.0.9.weight", "not known"));
  ModelFolder other("hydra_prefix", "heads");
  other.add("prefix_embeding_layer.layers.1.mlp.up_proj.weight", {32, 64});
  EXPECT_TRUE(says(hydra(other.write().string()), "no tensors prefix_embeding_layer.layers.1.mlp.up_proj.weight"));
}

TEST_F(MedusaFilesOf, HydrasWithoutTokensAreRefused) {
  ModelFolder folder("hydra", "heads");
  std::erase_if(folder.tensors, [](const auto& t) { return t.first.find("res_connection") != std::string::npos; });
  EXPECT_TRUE(says(hydra(folder.write().string()), "no Hydra heads that read tokens", "hydra_lm_head.0.bias"));
}

TEST_F(MedusaFilesOf, HydrasLayerIsTheTargetsUnlessItsConfigSaysOtherwise) {
  ModelFolder folder("hydra_prefix", "heads");
  const ModelConfig plain = open_hydra(folder.write().string(), target, 1e-6).layer;
  EXPECT_EQ(plain.heads, 4);
  EXPECT_EQ(plain.kv_heads, 2);
  EXPECT_EQ(plain.head_size, 16);
  EXPECT_EQ(plain.rope_theta, 10000);
  EXPECT_EQ(plain.norm_epsilon, 1e-6);
  folder.config["rope_theta"] = 500000.0, folder.config["rms_norm_eps"] = 1e-5, folder.config["head_dim"] = 8;
  const ModelConfig own = open_hydra(folder.write().string(), target, 1e-6).layer;
  EXPECT_EQ(own.heads, 8);
  EXPECT_EQ(own.rope_theta, 500000);
  EXPECT_EQ(own.norm_epsilon, 1e-5);
}

TEST_F(MedusaFilesOf, APickleNamesTheCommandThatConvertsIt) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}"), folder.write("medusa_lm_head.pt", "PK");
  const auto convert = "experiments/models/convert_head.py";
  EXPECT_TRUE(says(medusa(folder.path().string()), "medusa_lm_head.pt is a Python pickle", convert));
  EXPECT_TRUE(says(hydra(folder.path().string()), "medusa_lm_head.pt is a Python pickle", convert));
}

}  // namespace
}  // namespace foretoken::test
