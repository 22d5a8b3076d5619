// tree = chain: the logits of each node of a draft tree equal the logits of its path run alone.
#include <filesystem>

#include <gtest/gtest.h>

#include "experiments/conformance/laws.h"
#include "framework/model/model_files.h"
#include "framework/model/transformer.h"
#include "tests/laws/tree_is_chain.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {

using namespace conformance;

namespace {

void expect_chains(Backend& backend, const std::shared_ptr<Model>& model, std::initializer_list<int> sizes, int trees,
                   int context = 0) {
  for (const int nodes : sizes)
    for (int seed = 1; seed <= trees; ++seed) {
      const Finding f = tree_is_chain(backend, model, nodes, std::uint64_t(seed), context);
      EXPECT_TRUE(f.holds) << f.what.substr(0, 500);
      EXPECT_EQ(f.cases, nodes + 1);
    }
}

TEST(TreeIsChain, Tables) {
  ReferenceBackend b;
  expect_chains(b, std::make_shared<TableModel>(TableModel::Options{.vocab = 5, .order = 0}), {0, 1, 6, 40, 64, 100},
                12);
}

TEST(TreeIsChain, TransformersOnReference) {
  ReferenceBackend b;
  for (const std::string& name : tiny_model_names()) expect_chains(b, tiny_model(b, name), {5, 20}, 2);
}

TEST(TreeIsChain, TransformersOnCpu) {
  for (const std::string& instructions : cpu_instructions()) {
    const auto b = cpu_backend(2, instructions);
    for (const std::string& name : tiny_model_names()) expect_chains(*b, tiny_model(*b, name), {5, 20, 70}, 2);
  }
}

// A window that begins among a node's ancestors, on both sides of depth 256.
TEST(TreeIsChain, WindowsOnCpu) {
  for (const std::string name : {"mistral", "gemma2", "gemma3", "gpt_oss"}) {  // of some layers, in all but the first
    const auto folder = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "tests/data/models" / name;
    ModelConfig config = ModelConfig::load(folder);
    config.positions = 512, config.window = 3;
    for (const std::string& instructions : cpu_instructions()) {
      const auto b = cpu_backend(2, instructions);
      const auto model = std::make_shared<Transformer>(*b, config, *ModelFiles::open(folder)->tensors(), name, 0);
      expect_chains(*b, model, {40}, 4, 240);
    }
  }
}

}  // namespace
}  // namespace foretoken::test
