// A draft model whose vocabulary is padded to another size than the target's: the laws of outputs hold, and where rows
// are cut, its drafts are those of the model without them.
#include <cstring>
#include <filesystem>
#include <fstream>

#include "experiments/quantize/safetensors_file.h"
#include "framework/model/convert.h"
#include "framework/model/model_tensors.h"
#include "framework/model/open_model.h"
#include "framework/text/json_file.h"
#include "tests/experiments/sweep/demo_runs.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

namespace fs = std::filesystem;
const fs::path kModels = fs::path(FORETOKEN_SOURCE_DIR) / "experiments" / "models";

class PaddedVocabularies : public Runs {
 protected:
  // A copy of a demo model with `more` rows, which would win every choice if they were ids: they are the table's
  // first row, times 8.
  std::string padded(const std::string& name, int more) {
    const fs::path from = kModels / name, to = folder.path() / (name + std::to_string(more));
    fs::copy(from, to, fs::copy_options::recursive);
    json config = read_json(from / "config.json");
    const std::int64_t vocab = config["vocab_size"], width = config["hidden_size"];
    config["vocab_size"] = vocab + more;
    std::ofstream(to / "config.json") << config;
    const OpenModel open = open_model(from.string(), [](const std::string& p) { return p; });
    std::vector<StoredTensor> all;
    for (const std::string& tensor : open.tensors->names()) all.push_back(stored(open, tensor, vocab, width, more));
    write_safetensors(to / "model.safetensors", all);
    return to.string();
  }
  json both(const std::string& target, const std::string& draft, const json& changes = json::object()) {
    json run = {{"target", {{"model", target}}}, {"drafter", {{"model", draft}}}, {"measure", {{"repeats", 1}}}};
    run.merge_patch(changes);
    return measured(run);
  }

  TemporaryFolder folder;

 private:
  static StoredTensor stored(const OpenModel& open, const std::string& name, std::int64_t vocab, std::int64_t width,
                             int more) {
    if (name != "model.embed_tokens.weight")
      return stored_tensor(name, open.tensors->tensor(name, tensors_of(open.config).at(name)));
    const Tensor table = open.tensors->tensor(name, {vocab, width});
    const Tensor all = Tensor::host({vocab + more, width}, DType::f32);
    std::memset(all.raw(), 0, std::size_t(all.bytes()));
    convert(table, all.rows(0, vocab));
    for (std::int64_t row = vocab; row < vocab + more; ++row)
      for (std::int64_t i = 0; i < width; ++i) all.row<float>(row)[i] = 8 * all.row<float>(0)[i];
    const Tensor rounded = Tensor::host(all.shape(), DType::bf16);
    convert(all, rounded);
    return stored_tensor(name, rounded);
  }
};

const json kDemo = "experiments/models/target";

TEST_F(PaddedVocabularies, RowsThatTheTargetLacksChangeNothing) {
  const std::string wide = padded("draft", 128);
  for (const double temperature : {0.0, 1.0}) {
    const json changes = {{"sampling", {{"temperature", temperature}}}};
    const json plain = both(kDemo, "experiments/models/draft", changes), cut = both(kDemo, wide, changes);
    for (const char* count : {"tokens", "drafted", "tested", "accepted", "rounds"})
      EXPECT_EQ(cut["repeats"][0]["speculative"][count], plain["repeats"][0]["speculative"][count]) << count;
    EXPECT_EQ(cut["outputs"], plain["outputs"]) << temperature;
  }
}

TEST_F(PaddedVocabularies, RowsThatTheDraftLacksAreNeverDrafted) {
  const std::string wide = padded("target", 128);
  const json greedy = both(wide, "experiments/models/draft");
  EXPECT_EQ(greedy["target"]["vocab"], 4096 + 128);
  EXPECT_GT(greedy["agreement"]["compared_texts"], 0);
  EXPECT_EQ(greedy["agreement"]["differing_texts"], 0);
  const json coupled =
      both(wide, "experiments/models/draft", {{"sampling", {{"temperature", 1}}}, {"verifier", {{"name", "coupled"}}}});
  EXPECT_GT(coupled["agreement"]["compared_texts"], 0);
  EXPECT_EQ(coupled["agreement"]["differing_texts"], 0);
  for (const char* drafter : {"draft_tree", "draft_dynamic"}) {
    const json tree = both(wide, "experiments/models/draft",
                           {{"drafter", {{"name", drafter}}}, {"policy", {{"length", 4}, {"nodes", 45}}}});
    EXPECT_EQ(tree["agreement"]["differing_texts"], 0) << drafter;
  }
}

TEST_F(PaddedVocabularies, OfOneModelTheUnpaddedIsLoadedOnce) {
  const json line = both(kDemo, kDemo);
  EXPECT_EQ(line["repeats"][0]["speculative"]["memory"]["draft_weights"], 0) << "it is the target";
}

}  // namespace
}  // namespace foretoken::test
