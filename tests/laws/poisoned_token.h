// On any device: a token with a NaN embedding turns all later keys and values into NaN. A request with it in the prompt
// fails; the others have the outputs that they have without it, also on pages that it used before.
#pragma once
#include <algorithm>
#include <filesystem>
#include <vector>

#include <gtest/gtest.h>

#include "drafters/drafters.h"
#include "experiments/conformance/scenario.h"
#include "framework/engine/engine.h"
#include "framework/model/transformer.h"
#include "tests/support/sentence.h"

namespace foretoken::test {

inline constexpr Token kPoison = 77;

// The demo target with an untied head, and NaN in one row of the embedding.
class PoisonedTensors : public TensorSource {
 public:
  explicit PoisonedTensors(const std::filesystem::path& folder) : inner_(Checkpoint::open(folder)) {}
  Tensor tensor(const std::string& name, const Shape& expected) const override {
    const std::string table = "model.embed_tokens.weight";
    const Tensor stored = inner_.tensor(name == "lm_head.weight" ? table : name, expected);
    if (name != table) return stored;
    Tensor poisoned = Tensor::host(stored.shape(), stored.dtype());
    std::copy_n(stored.data<std::uint8_t>(), stored.bytes(), poisoned.data<std::uint8_t>());
    std::fill_n(poisoned.row<std::uint16_t>(kPoison), poisoned.dim(1), std::uint16_t(0x7fc0));  // bf16
    return poisoned;
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> all = inner_.names();
    all.push_back("lm_head.weight");
    return all;
  }
  std::string where() const override { return inner_.where(); }

 private:
  Checkpoint inner_;
};

struct PoisonedScenario {
  Backend& backend;
  std::shared_ptr<Model> target, draft;

  explicit PoisonedScenario(Backend& b) : backend(b) {
    const auto models = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "experiments/models";
    ModelConfig config = ModelConfig::load(models / "target");
    config.tied_head = false;
    target = std::make_shared<Transformer>(b, config, PoisonedTensors(models / "target"), "target", 0);
    draft = std::make_shared<Transformer>(b, ModelConfig::load(models / "draft"), Checkpoint::open(models / "draft"),
                                          "draft", 0);
  }

  // Serves these requests of ten, of which numbers 2 and 5 are poisoned: in the middle of a prompt that is read in two
  // steps.
  std::vector<Sequence> serve(const nlohmann::json& drafter, const std::vector<int>& numbers) const {
    Engine engine(backend, target, conformance::all_registries(),
                  {drafter, {{"name", "fixed"}, {"length", 3}}, {{"name", "speculative_sampling"}}},
                  {.batch = 3, .step_rows = 24, .page_rows = 4, .pages = 64, .check = true},
                  [this](const ModelChoice&) { return draft; });
    const Draws draws{5, 0, 0, 0};
    for (const int number : numbers) {
      Request r;
      for (std::uint32_t k = 0; k < 28; ++k)
        r.prompt.push_back(Token(100 + 3000 * draws.uniform({Role::draft, std::uint32_t(number), k})));
      if (number == 2 || number == 5) r.prompt[9] = kPoison;
      r.limits.max_new_tokens = 16;
      r.sampling.logit_bias = {{kPoison, -100}};
      engine.submit(std::move(r));
    }
    std::vector<Sequence> done;
    while (!engine.idle())
      for (auto& s : engine.step().finished) done.push_back(std::move(s));
    EXPECT_EQ(engine.pool().in_use(), 0);
    std::ranges::sort(done, {}, &Sequence::id);
    return done;
  }
};

inline void expect_poison_harms_nobody_else(Backend& backend) {
  const PoisonedScenario scenario(backend);
  for (const nlohmann::json& drafter :
       {nlohmann::json{{"name", "none"}}, nlohmann::json{{"name", "draft_model"}, {"model", "draft"}}}) {
    std::vector<Sequence> all = scenario.serve(drafter, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    ASSERT_EQ(all.size(), 10u);
    for (const std::size_t poisoned : {5u, 2u}) {
      EXPECT_EQ(all[poisoned].finish, Finish::failed);
      EXPECT_TRUE(says(all[poisoned].failure, "NaN")) << all[poisoned].failure;
      all.erase(all.begin() + std::ptrdiff_t(poisoned));
    }
    const std::vector<Sequence> others = scenario.serve(drafter, {0, 1, 3, 4, 6, 7, 8, 9});
    ASSERT_EQ(others.size(), 8u);
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(all[i].tokens, others[i].tokens) << drafter << ", request " << i;
      EXPECT_EQ(all[i].finish, Finish::length) << all[i].failure;
    }
  }
}

}  // namespace foretoken::test
