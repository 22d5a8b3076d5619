// A drafter of two models: each has a shape and a dtype of its own, wherever the run names them.
#include <gtest/gtest.h>

#include "experiments/session/run_document.h"
#include "experiments/session/workbench.h"
#include "experiments/sweep/provenance.h"
#include "framework/components/host.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/sentence.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

// Large enough for both demo drafts (tests/experiments/sweep/workbench_test.cpp has the like).
constexpr const char* kTwoModelsShape =
    R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 4096, "hidden_size": 448,
  "intermediate_size": 1088, "num_hidden_layers": 9, "num_attention_heads": 12, "num_key_value_heads": 3,
  "head_dim": 128, "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_theta": 500000.0})";

class Silent : public Drafter {
 public:
  explicit Silent(Host& host) : backend_(host.backend()) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override { return rooted(backend_, requests); }

 private:
  Backend& backend_;
};

struct TwoModels : testing::Test {
  TwoModels() {
    shape.write("config.json", kTwoModelsShape);
    registries = bench.registries();
    registries.drafters.add("staged", {"two models",
                                       "",
                                       {{"small", "model", nullptr, "the smaller"},
                                        {"small_dtype", "dtype", "auto", "of the smaller", false, 0, 0, "small"},
                                        {"large", "model", nullptr, "the larger"},
                                        {"large_shape", "shape", nullptr, "of the larger", true, 0, 0, "large"}},
                                       [this](const json& o, Host& host) {
                                         given = o;
                                         for (const char* name : {"small", "large"})
                                           made.push_back(host.load(ModelChoice::read(o.at(name))));
                                         return std::make_unique<Silent>(host);
                                       },
                                       states(Needs())});
  }
  json run(const json& drafter) {
    return complete_run({{"target", {{"model", "experiments/models/target"}, {"dtype", "f32"}, {"kv_dtype", "f32"}}},
                         {"drafter", drafter},
                         {"engine", {{"batch", 2}, {"device", "cpu"}, {"threads", 1}, {"memory_mib", 32}}},
                         {"workload", {{"prompts", "experiments/prompts.jsonl"}, {"limit", 1}}}},
                        registries, "test");
  }

  TemporaryFolder shape;
  Workbench bench;
  Registries registries;
  json given;
  std::vector<std::shared_ptr<Model>> made;
  const json plain{{"name", "staged"},
                   {"small", "experiments/models/draft"},
                   {"small_dtype", "int8"},
                   {"large", "experiments/models/draft"},
                   {"large_shape", shape.path().string()}};
};

TEST_F(TwoModels, AreLoadedEachAsItsOptionsSay) {
  const auto engine = bench.engine(run(plain), Side::speculative, "", registries);
  EXPECT_EQ(given["small"], (json{{"directory", "experiments/models/draft"}, {"dtype", "int8"}}));
  EXPECT_EQ(given["large"], (json{{"directory", "experiments/models/draft"}, {"inflate", shape.path().string()}}));
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0]->info().name, "experiments/models/draft");
  EXPECT_EQ(made[1]->info().name, "experiments/models/draft inflated to " + shape.path().string());
  EXPECT_LT(made[0]->info().weight_bytes * 4, made[1]->info().weight_bytes) << "the first alone is int8, and small";
}

// What a fraction of the memory is taken of: both models are there before, and the engine loads neither again.
TEST_F(TwoModels, AreBothLoadedBeforeThePoolIsMeasured) {
  json document = run(plain);
  document["engine"]["memory_mib"] = nullptr, document["engine"]["memory_fraction"] = 0.001;
  std::vector<std::weak_ptr<Model>> first;
  {
    const auto engine = bench.engine(document, Side::speculative, "", registries);
    first.assign(made.begin(), made.end());
  }
  made.clear();
  const auto again = bench.engine(document, Side::baseline, "", registries);
  for (const auto& model : first) EXPECT_FALSE(model.expired()) << "the pool of the other side counts it too";
}

TEST_F(TwoModels, HaveTheirFilesInTheProvenance) {
  const json sources = sources_of(run(plain), registries, "");
  EXPECT_TRUE(sources.contains((shape.path() / "config.json").string())) << sources;
  EXPECT_TRUE(sources.contains("experiments/models/draft")) << sources;
}

TEST_F(TwoModels, EqualChoicesAreOneRun) {
  json within = plain;
  within.erase("small_dtype"), within.erase("large_shape");
  within["small"] = {{"directory", "experiments/models/draft"}, {"dtype", "int8"}};
  within["large"] = {{"directory", "experiments/models/draft"}, {"inflate", shape.path().string()}};
  EXPECT_EQ(run(within), run(plain));
  EXPECT_EQ(run(run(plain)["drafter"]), run(plain));
}

TEST_F(TwoModels, APartThatIsGivenTwiceIsRefused) {
  json twice = plain;
  twice["small"] = {{"directory", "experiments/models/draft"}, {"dtype", "bf16"}};
  EXPECT_TRUE(says(sentence_of([&] { run(twice); }), "drafter 'staged': 'dtype' of the model", "is given twice",
                   "leave one of them out"));
}

TEST_F(TwoModels, ATargetTakesItsPartsEitherWay) {
  const auto with = [&](const json& target) {
    return complete_run({{"target", target}, {"workload", {{"prompts", "experiments/prompts.jsonl"}}}}, registries,
                        "test");
  };
  const json beside = with({{"model", "a"}, {"inflate", "llama-3.1-8b"}, {"dtype", "int8"}});
  EXPECT_EQ(with({{"model", {{"directory", "a"}, {"inflate", "llama-3.1-8b"}, {"dtype", "int8"}}}}), beside);
  EXPECT_EQ(beside["target"]["model"], "a");
  EXPECT_EQ(beside["target"]["inflate"], "llama-3.1-8b");
}

}  // namespace
}  // namespace foretoken::test
