// Heads beside an inflated target, inflated with it, compute what they compute beside the small one.
#include <gtest/gtest.h>

#include "framework/model/inflation.h"
#include "tests/drafters/block_by_hand.h"
#include "tests/framework/model/inflate.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

namespace fs = std::filesystem;

const fs::path kTarget = fs::path(FORETOKEN_SOURCE_DIR) / "tests/data/models/llama2";
constexpr int kExtraTokens = 33;

std::shared_ptr<Model> inflated_target(Backend& backend) {
  const ModelConfig config = ModelConfig::load(kTarget), shape = larger(config, kExtraTokens, false);
  const InflatedWeights weights(std::make_shared<Checkpoint>(Checkpoint::open(kTarget)), config, shape, "llama2",
                                "large", true);
  return std::make_shared<Transformer>(backend, weights.config(), weights, "large", 0,
                                       TransformerOptions{"f32", "f32", "f32"});
}

// The shape of a layer of the inflated target's width.
struct Shapes {
  Shapes() {
    folder.write("config.json",
                 R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 500, "hidden_size": 164,
                     "intermediate_size": 90, "num_hidden_layers": 9, "num_attention_heads": 9,
                     "num_key_value_heads": 3, "head_dim": 32, "max_position_embeddings": 4096,
                     "rms_norm_eps": 1e-5})");
  }
  nlohmann::json head(const std::string& name, nlohmann::json more = nlohmann::json::object()) const {
    more["directory"] = (kHeads / name).string(), more["inflate"] = folder.path().string();
    return more;
  }
  TemporaryFolder folder;
};

Token first_choice(const std::vector<float>& logits) {
  return Token(std::ranges::max_element(logits) - logits.begin());
}

// The first columns of its logits; no token beyond them can be drawn.
template <class ByHand> struct OfTheSmallVocabulary {
  ByHand& by_hand;
  std::vector<std::vector<float>> round(const Tokens& tokens, const Tokens& drafts) {
    auto found = by_hand.round(tokens, drafts);
    for (std::vector<float>& row : found) {
      const std::size_t vocab = row.size() - kExtraTokens;
      for (std::size_t i = vocab; i < row.size(); ++i) EXPECT_EQ(row[i], -std::numeric_limits<float>::infinity()) << i;
      row.resize(vocab);
    }
    return found;
  }
};

struct InflatedHeads : ::testing::TestWithParam<const char*> {};

TEST_P(InflatedHeads, GiveTheLogitsOfTheSmallOnes) {
  const Shapes shapes;
  const bool own = std::string(GetParam()) == "eagle3" || std::string(GetParam()) == "eagle31";
  HeadByHand by_hand(make_reference_backend(), inflated_target);
  by_hand.as_named = [&](const std::string& name) {
    return shapes.head(name, own ? nlohmann::json{{"draft_vocab", 40}} : nlohmann::json::object());
  };
  by_hand.open(GetParam());
  EXPECT_EQ(by_hand.taps, golden_of(GetParam()).at("taps").get<std::vector<Tap>>());
  OfTheSmallVocabulary<HeadByHand> first{by_hand};
  EXPECT_LT(golden_error(first, golden_of(GetParam())), 4e-5);
}

// Greedy chains along a decode that accepts some of their tokens and rejects others.
TEST_P(InflatedHeads, DraftWhatTheSmallOnesDraft) {
  const Shapes shapes;
  HeadByHand small(make_reference_backend()), large(make_reference_backend(), inflated_target);
  large.as_named = [&](const std::string& name) { return shapes.head(name); };
  small.open(GetParam()), large.open(GetParam());
  Tokens tokens{1, 7, 33}, drafts;
  for (const int accepted : {2, 0, 3, 1}) {
    drafts.clear();
    for (int level = 0; level < 3; ++level) {
      const Token next = first_choice(small.round(tokens, drafts).back());
      ASSERT_EQ(first_choice(large.round(tokens, drafts).back()), next) << tokens.size() << " " << level;
      drafts.push_back(next);
    }
    tokens.insert(tokens.end(), drafts.begin(), drafts.begin() + accepted);
    tokens.push_back((tokens.back() * 7 + 5) % 96);
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, InflatedHeads,
                         testing::Values("eagle1", "eagle3", "eagle3_speculators", "eagle31", "mtp_mimo", "mtp_qwen"),
                         [](const auto& instance) { return std::string(instance.param); });

struct InflatedBlocks : ::testing::TestWithParam<const char*> {};

TEST_P(InflatedBlocks, GiveTheLogitsOfTheSmallOnes) {
  const Shapes shapes;
  BlockByHand by_hand(make_reference_backend(), inflated_target);
  by_hand.as_named = [&](const std::string& name) { return shapes.head(name, {{"layers", 3}}); };
  by_hand.open(GetParam());
  EXPECT_EQ(by_hand.head->info().kv.layers.size(), 3u);
  EXPECT_EQ(by_hand.head->form().taps, golden_of(GetParam()).at("taps").get<std::vector<Tap>>());
  OfTheSmallVocabulary<BlockByHand> first{by_hand};
  EXPECT_LT(golden_error(first, golden_of(GetParam())), 4e-5);
}

INSTANTIATE_TEST_SUITE_P(Layouts, InflatedBlocks,
                         testing::Values("dflash_zlab", "dflash_sliding", "dflash_deepspec", "dspark_deepspec",
                                         "dflash_speculators", "dspark_speculators"),
                         [](const auto& instance) { return std::string(instance.param); });

std::vector<float> state(const HiddenStates& states, int position, Tap tap) {
  std::vector<float> all;
  for (const int half : {0, 1}) {
    const auto* const from = reinterpret_cast<const float*>(states.address(position, tap, half));
    all.insert(all.end(), from, from + states.half());
  }
  return all;
}

// State k of the small model is state k of the inflated one, then zeros, then the constants, which the state behind the
// last norm is without.
TEST(InflatedTarget, HasTheStatesOfTheSmallOne) {
  HeadByHand small(make_reference_backend()), large(make_reference_backend(), inflated_target);
  const int layers = int(small.models.target->info().kv.layers.size());
  ASSERT_LT(layers, int(large.models.target->info().kv.layers.size()));
  const std::vector<Tap> taps{0, 1, layers, kNormed};
  for (HeadByHand* h : {&small, &large}) h->states.emplace(*h->backend, h->models, Needs{.hidden = taps});
  const Tokens tokens{1, 7, 33, 20, 5};
  const DraftRequest a = small.request(tokens, 1), b = large.request(tokens, 1);
  for (const Tap tap : taps)
    for (int position = 0; position + 1 < int(tokens.size()); ++position) {
      const std::vector<float> want = state(a.hidden, position, tap);
      std::vector<float> have = state(b.hidden, position, tap);
      const float constant = have.back();
      EXPECT_EQ(constant, have[have.size() - 2]);
      EXPECT_EQ(constant > 0, tap != kNormed) << tap;
      EXPECT_LT(constant, 1e-6f);
      have.resize(have.size() - 2);
      for (std::size_t i = 0; i < have.size(); ++i)
        EXPECT_NEAR(have[i], i < want.size() ? want[i] : 0, 2e-5) << tap << " " << i;
    }
}

// Layers of the head's files are those of the small target: by its own number of layers the inflated one would have
// other states in the middle and at the end, all of them the small target's last.
TEST(InflatedHeadFiles, NameTheLayersOfTheSmallTarget) {
  const fs::path committed = fs::path(FORETOKEN_SOURCE_DIR) / "experiments/models/heads";
  ModelInfo small, large;
  small.vocab = 4096, small.width = 384, small.kv = KvShape(8, 2, 64, DType::f32);
  large.vocab = 128256, large.width = 4096, large.kv = KvShape(32, 8, 128, DType::f32);
  large.small = SmallModel{4096, 384, 8, 2};
  const auto head = [&](const char* name) {
    return nlohmann::json{{"directory", (committed / name).string()}, {"inflate", "llama-3.1-8b"}};
  };
  EXPECT_EQ(open_eagle(head("eagle3"), 3, large).form.taps, (std::vector<Tap>{2, 4, 5}));
  EXPECT_EQ(open_eagle(head("eagle3").at("directory"), 3, small).form.taps, (std::vector<Tap>{2, 4, 5}));
  EXPECT_EQ(open_block(head("dflash"), false, large).form.taps, (std::vector<Tap>{2, 5, 7}));
  EXPECT_EQ(open_mtp(head("mtp"), large).layer.width, 4096);
  const ModelConfig layer = open_eagle(head("eagle3"), 3, large).form.layer;
  EXPECT_EQ(std::vector({layer.ffn, layer.heads, layer.kv_heads, layer.head_size}), std::vector({14336, 32, 8, 128}));
}

struct Refusals : ::testing::Test {
  Refusals() { target.name = "large", target.small = SmallModel{96, 64, 2, 2}, target.vocab = 129, target.width = 164; }
  std::string eagle(const nlohmann::json& head, int generation = 3) const {
    return sentence_of([&] { open_eagle(head, generation, target); });
  }
  Shapes shapes;
  ModelInfo target;
};

TEST_F(Refusals, OfAHeadOrATargetThatIsNotInflated) {
  target.kv = KvShape(5, 5, 32, DType::f32);
  EXPECT_TRUE(
      says(eagle((kHeads / "eagle3").string()), "the target large is inflated", "eagle3", "\"inflate\": SHAPE"));
  target.small.reset();
  EXPECT_TRUE(says(eagle(shapes.head("eagle3")), "is inflated, but the target large is not", "both or neither"));
}

TEST_F(Refusals, OfShapesThatDoNotFit) {
  target.kv = KvShape(5, 5, 32, DType::f32);
  EXPECT_TRUE(says(eagle(shapes.head("eagle3", {{"draft_vocab", 15}})), "'draft_vocab' is 15", "the head has 16"));
  EXPECT_TRUE(says(eagle(shapes.head("eagle1", {{"draft_vocab", 15}}), 1), "the target's matrix of logits"));
  target.width = 200;
  EXPECT_TRUE(says(eagle(shapes.head("eagle3")), "it has 164 features", "has 200", "choose a shape of this width"));
  target.width = 164, target.small->width = 48;
  EXPECT_TRUE(says(eagle(shapes.head("eagle3")), "has 64 features", "have 48", "another target"));
  target.small->width = 64, target.small->small_constants = false;
  EXPECT_TRUE(says(eagle(shapes.head("eagle3")), "one matrix for its embedding and its head", "llama-3.1-8b"));
}

TEST(InflatedHeadOptions, OfKindsThatCannotBeInflatedAreRefused) {
  HeadByHand plain(make_reference_backend()), large(make_reference_backend(), inflated_target);
  const auto made = [&](HeadByHand& h, const nlohmann::json& drafter) {
    return sentence_of([&] { h.registries.drafters.make(drafter, h.host); });
  };
  const Shapes shapes;
  const std::string why = "heads of the drafter 'medusa' cannot be inflated";
  EXPECT_TRUE(says(made(plain, {{"name", "medusa"}, {"head", shapes.head("medusa1")}}), why, "dflash"));
  EXPECT_TRUE(says(made(large, {{"name", "medusa"}, {"head", (kHeads / "medusa1").string()}}), why));
  EXPECT_TRUE(says(made(plain, {{"name", "eagle3"}, {"head", {{"directory", "x"}, {"layers", 2}}}}), "layers"));
  EXPECT_TRUE(says(made(plain, {{"name", "eagle3"}, {"head", {{"inflate", "llama-3.1-8b"}}}}), "\"directory\""));
  EXPECT_EQ(made(plain, {{"name", "eagle3"}, {"head", {{"directory", (kHeads / "eagle3").string()}}}}), "");
}

// The directories within a head's object are found, and hashed for results, as a plain path is.
TEST(InflatedHeadOptions, HaveTheirPathsResolved) {
  const nlohmann::json drafter{{"name", "eagle3"}, {"head", {{"directory", "d"}, {"inflate", "s/t"}}}};
  const Registries registries = all_registries();
  const auto found = registries.drafters.with_paths(drafter, [](const std::string& path) { return "/at/" + path; });
  EXPECT_EQ(found["head"], (nlohmann::json{{"directory", "/at/d"}, {"inflate", "/at/s/t"}}));
  EXPECT_EQ(registries.drafters.files(drafter).paths, (std::vector<std::string>{"d", "s/t"}));
  EXPECT_EQ(registries.drafters.files({{"name", "eagle3"}, {"head", {{"random", "small"}}}}).paths.size(), 0u);
}

}  // namespace
}  // namespace foretoken::test
