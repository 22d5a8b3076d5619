// Heads that draft from the target's last state without its cache: how Medusa's levels and a tree's nodes have the same
// logits, how deep they draft, and which files are refused.
#include <gtest/gtest.h>

#include "tests/drafters/head_by_hand.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

namespace fs = std::filesystem;

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

TEST(Medusa, HeadsBelowTheDeepestTreeAreNotLoaded) {
  HeadByHand by_hand(make_reference_backend());
  const ModelInfo& target = by_hand.models.target->info();
  const MedusaFiles files = open_medusa((kHeads / "medusa1").string(), target);
  EXPECT_EQ(files.heads, 4);  // its config.json says 2
  EXPECT_EQ(MedusaHeads(*by_hand.backend, files, by_hand.host.ends(), target, "f32", 3).count(), 3);
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

struct MedusaFilesOf : ::testing::Test {
  HeadByHand by_hand{make_reference_backend()};
  ModelInfo target = by_hand.models.target->info();
  std::string medusa(const std::string& path) {
    return sentence_of(
        [&] { MedusaHeads(*by_hand.backend, open_medusa(path, target), by_hand.host.ends(), target, "f32", 9); });
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

TEST_F(MedusaFilesOf, APickleNamesTheCommandThatConvertsIt) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}"), folder.write("medusa_lm_head.pt", "PK");
  const auto convert = "experiments/models/convert_head.py";
  EXPECT_TRUE(says(medusa(folder.path().string()), "medusa_lm_head.pt is a Python pickle", convert));
  EXPECT_TRUE(says(hydra(folder.path().string()), "medusa_lm_head.pt is a Python pickle", convert));
}

}  // namespace
}  // namespace foretoken::test
