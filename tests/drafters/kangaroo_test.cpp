// The adapter of the drafter early_exit in engines, and what is refused. Its logits: heads_test.
#include <fstream>

#include <gtest/gtest.h>

#include "drafters/heads/kangaroo_head.h"
#include "framework/model/checkpoint.h"
#include "tests/drafters/golden_logits.h"
#include "tests/drafters/recorded_trees.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

namespace fs = std::filesystem;

const fs::path kAdapter = kHeads / "kangaroo";

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The golden adapter with its attention silenced and the target's last norm: it adds nothing to a plain exit.
struct SilentAdapter {
  SilentAdapter() {
    const std::string all = bytes_of(kAdapter / "model.safetensors");
    std::uint64_t size = 0;
    std::memcpy(&size, all.data(), sizeof size);
    json header = json::parse(all.substr(sizeof size, size));
    std::string data = all.substr(sizeof size + size);
    const auto place = [&](const char* name) {
      return header.at(name).at("data_offsets").get<std::pair<std::size_t, std::size_t>>();
    };
    const auto [begin, end] = place("layers.0.self_attn.o_proj.weight");
    std::fill_n(data.begin() + std::ptrdiff_t(begin), end - begin, '\0');
    const Checkpoint target = Checkpoint::open(fs::path(FORETOKEN_SOURCE_DIR) / "tests/data/models/llama2");
    const Tensor norm = target.tensor("model.norm.weight");
    const auto [last, all_data] = place("norm.weight");
    EXPECT_EQ(all_data, data.size());
    EXPECT_EQ(norm.dtype(), DType::f32);
    data = data.substr(0, last) + std::string(static_cast<const char*>(norm.raw()), std::size_t(norm.bytes()));
    header["norm.weight"]["dtype"] = "F32", header["norm.weight"]["data_offsets"] = {last, data.size()};
    const std::string text = header.dump();
    size = text.size();
    folder.write("model.safetensors", std::string(reinterpret_cast<const char*>(&size), sizeof size) + text + data);
    folder.write("config.json", bytes_of(kAdapter / "config.json"));
  }
  TemporaryFolder folder;
};

RunOutcome outcome(const json& drafter, const json& verifier, int pages, int step_rows,
                   const std::string& kv_dtype = "f32") {
  const auto backend = make_reference_backend();
  const Models models{tiny_model(*backend, "llama2", "auto", kv_dtype), {}};
  const Subject subject{all_registries(), {drafter, {{"name", "fixed"}, {"length", 4}, {"nodes", 12}}, verifier}};
  const Scenario scenario{
      .sampling = {.temperature = 0.4f},
      .engine = {.batch = 3, .step_rows = step_rows, .page_rows = 4, .pages = pages, .check = true}};
  return run_scenario({subject, scenario, *backend, models, random_requests(5, 90, 9, 30, 4)});
}

struct KangarooGrows : ::testing::TestWithParam<const char*> {
  static json drafter(const std::string& head) {
    json all = json::parse(GetParam());
    all["name"] = "early_exit";
    head.empty() ? all["layers"] = 1 : all["head"] = head;
    return all;
  }
};

// Round for round.
TEST_P(KangarooGrows, AnAdapterThatAddsNothingDraftsWhatThePlainExitDrafts) {
  const SilentAdapter silent;
  const json verifier{{"name", "speculative_sampling"}};
  const RunOutcome with = outcome(drafter(silent.folder.path().string()), verifier, 400, 256),
                   without = outcome(drafter(""), verifier, 400, 256);
  EXPECT_EQ(with.outputs, without.outputs);
  EXPECT_EQ(std::tuple(with.drafted, with.accepted), std::tuple(without.drafted, without.accepted));
  EXPECT_GT(with.accepted, 15);
  EXPECT_GT(with.rejections, 15);
  EXPECT_GT(with.draft_rows, without.draft_rows) << "the adapter's own rows";
}

// Prompts are read in chunks, and with few pages sequences are preempted.
TEST_P(KangarooGrows, OutputsAreThoseWithoutADraftWhereDrawsAreCoupled) {
  const json coupled{{"name", "coupled"}};
  for (const char* kv_dtype : {"f32", "int8"}) {
    const auto expected = outcome({{"name", "none"}}, coupled, 400, 256, kv_dtype).outputs;
    for (const int pages : {400, 15}) {
      const RunOutcome found = outcome(drafter(kAdapter.string()), coupled, pages, 12, kv_dtype);
      EXPECT_EQ(found.outputs, expected) << kv_dtype << " " << pages;
      EXPECT_EQ(found.preempted > 0, pages < 100);
      EXPECT_GT(found.accepted, 0);
      EXPECT_EQ(found.pages_left, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, KangarooGrows,
                         testing::Values(R"({"growth": "chain"})",
                                         R"({"growth": "tree", "shape": [2, 2, 1], "draws": "certain"})",
                                         R"({"growth": "dynamic", "width": 3, "expand": 3})"),
                         [](const auto& instance) { return "Growth" + std::to_string(instance.index); });

struct KangarooOptions : ::testing::Test {
  const std::unique_ptr<Backend> backend = make_reference_backend();
  const std::shared_ptr<Model> target = tiny_model(*backend, "llama2");
  const Registries registries = all_registries();

  Needs needs(json options) {
    options["name"] = "early_exit";
    return registries.drafters.traits(registries.drafters.complete(options), target->info());
  }
  std::string refused(const json& options) {
    return sentence_of([&] { (void)needs(options); });
  }
};

TEST_F(KangarooOptions, LayersAreThoseOfTheAdapterWhereItSaysSo) {
  const std::string head = kAdapter.string();
  EXPECT_EQ(needs({{"head", head}}).hidden, std::vector<Tap>{1});
  EXPECT_TRUE(needs({{"head", head}}).views_target);
  EXPECT_EQ(needs({{"head", head}, {"layers", 1}}).hidden, std::vector<Tap>{1});
  EXPECT_TRUE(needs({{"layers", 1}}).hidden.empty());
  EXPECT_TRUE(says(refused({{"head", head}, {"layers", 0}}), "'layers'", "is 0", "1 layers", "leave it out"));
  EXPECT_TRUE(says(refused({{"layers", 1}, {"dtype", "f32"}}), "'dtype'", "leave it out"));
  EXPECT_TRUE(says(refused(json::object()), "'layers'", "no 'head'"));
}

// Published files do not say it.
TEST_F(KangarooOptions, LayersAreNeededWhereTheAdapterSaysNothing) {
  const TemporaryFolder folder;
  json config = json::parse(bytes_of(kAdapter / "config.json"));
  config.erase("exit_layer"), config["num_hidden_layers"] = 32, config["intermediate_size"] = 11008;
  folder.write("config.json", config.dump());
  folder.write("model.safetensors", bytes_of(kAdapter / "model.safetensors"));
  EXPECT_TRUE(says(refused({{"head", folder.path().string()}}), "give the option 'layers'"));
  EXPECT_EQ(needs({{"head", folder.path().string()}, {"layers", 1}}).hidden, std::vector<Tap>{1});
  EXPECT_TRUE(says(refused({{"head", folder.path().string()}, {"layers", 2}}), "has 2 layers", "choose fewer"));
}

TEST_F(KangarooOptions, AdaptersOfOtherTargetsAndOtherHeadsAreRefused) {
  const KangarooFiles files = open_kangaroo(kAdapter.string(), target->info());
  ModelInfo other = target->info();
  other.width = 48;
  EXPECT_TRUE(says(sentence_of([&] { KangarooHead(*backend, files, *target->ends(*backend), other, "f32"); }),
                   "width of 64", "one of 48", "another target"));
  EXPECT_TRUE(says(refused({{"head", (kHeads / "eagle3").string()}}), "no adapter of an early exit"));
  const TemporaryFolder folder;
  folder.write("config.json", "{}"), folder.write("pytorch_model.bin", "PK");
  EXPECT_TRUE(says(refused({{"head", folder.path().string()}}), "pytorch_model.bin is a Python pickle",
                   "experiments/models/convert_head.py"));
}

// Neither the last norm and the head nor the layers behind the exit are read.
TEST_F(KangarooOptions, ThePartOfTheTargetHasNoHead) {
  const auto with = part_of(target, {{1}, {1}}), without = part_of(target, {{1}, {1}, true});
  EXPECT_EQ(with->info().weight_bytes - without->info().weight_bytes, target->ends(*backend)->head.bytes());
  EXPECT_TRUE(without->features() && !without->logits());
}

}  // namespace
}  // namespace foretoken::test
