// If files of a run's paths changed after its results were stored, resuming reports it.
#include "experiments/sweep/provenance.h"

#include <functional>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "experiments/report/machine.h"
#include "experiments/session/run_document.h"
#include "tests/experiments/report/made_results.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

TEST(Fingerprint, SeesContentsAndNothingElse) {
  const TemporaryFolder a, b;
  for (const TemporaryFolder* folder : {&a, &b}) {
    folder->write("p.jsonl", "one");
    folder->write("config.json", "{}"), folder->write("model.safetensors", std::string(3 << 20, 'w'));
  }
  EXPECT_EQ(fingerprint(a.path()), fingerprint(b.path()));
  EXPECT_EQ(fingerprint(a.path() / "p.jsonl"), fingerprint(b.path() / "p.jsonl"));
  EXPECT_EQ(fingerprint(a.path()).size(), 21u);
  b.write("p.jsonl", "two"), b.write("README.md", "of no matter");
  EXPECT_NE(fingerprint(a.path() / "p.jsonl"), fingerprint(b.path() / "p.jsonl"));
  EXPECT_EQ(fingerprint(a.path()), fingerprint(b.path()));
  b.write("model.safetensors", std::string((3 << 20) - 1, 'w') + "v");
  EXPECT_NE(fingerprint(a.path()), fingerprint(b.path()));
  b.write("model.safetensors", std::string(3 << 20, 'w')), b.write("config.json", "{ }");
  EXPECT_NE(fingerprint(a.path()), fingerprint(b.path()));
  EXPECT_EQ(fingerprint(a.path() / "nowhere"), "");
}

// Every byte counts, also in the middle of weights that are read in blocks, for any modification time.
TEST(Fingerprint, SeesTheMiddleOfWeights) {
  const TemporaryFolder folder;
  std::string weights((9 << 20) + 5, 'w');
  const auto file = folder.write("model.safetensors", weights);
  const auto time = std::filesystem::last_write_time(file);
  std::set<std::string> prints{fingerprint(folder.path())};
  for (const std::size_t at :
       {std::size_t(0), weights.size() / 2, (std::size_t(4) << 20) - 1, std::size_t(4) << 20, weights.size() - 1}) {
    std::string changed = weights;
    changed[at] = 'v';
    folder.write("model.safetensors", changed);
    std::filesystem::last_write_time(file, time);
    EXPECT_TRUE(prints.insert(fingerprint(folder.path())).second) << at;
  }
  folder.write("model.safetensors", weights + std::string(1, '\0'));
  EXPECT_TRUE(prints.insert(fingerprint(folder.path())).second);
}

TEST(Fingerprint, SeesTheChatTemplateAndTheGenerationConfig) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}"), folder.write("model.safetensors", "w");
  std::set<std::string> prints{fingerprint(folder.path())};
  for (const char* name : {"chat_template.jinja", "generation_config.json", "tokenizer_config.json", "tokenizer.json"})
    for (const char* text : {"{}", "{ }"}) {
      folder.write(name, text);
      EXPECT_TRUE(prints.insert(fingerprint(folder.path())).second) << name;
    }
}

// Other files of a directory are not read: neither other formats nor shards that the index does not name.
TEST(Fingerprint, SeesTheShardsThatTheIndexNames) {
  const TemporaryFolder folder;
  folder.write("config.json", "{}");
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  folder.write("1.safetensors", "one"), folder.write("2.safetensors", "two"),
      folder.write("consolidated.safetensors", "x");
  const std::string before = fingerprint(folder.path());
  folder.write("consolidated.safetensors", "y"), folder.write("README.md", "z");
  EXPECT_EQ(fingerprint(folder.path()), before);
  folder.write("2.safetensors", "three");
  EXPECT_NE(fingerprint(folder.path()), before);
}

TEST(Fingerprint, OfWhatCannotBeReadIsAnError) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder.path() / "p.jsonl").c_str(), 0600), 0);
  EXPECT_TRUE(says(sentence_of([&] { fingerprint(folder.path() / "p.jsonl"); }), "p.jsonl", "a pipe"));
  EXPECT_TRUE(says(sentence_of([&] { fingerprint("/proc/self/mem"); }), "/proc/self/mem", "Input/output error"));
}

using Prints = std::map<std::string, std::string>;

TEST(Sources, AreThePromptsAndTheModels) {
  Registries registries;
  register_drafters(registries), register_verifiers(registries);
  json document = {{"target", {{"model", "experiments/models/target"}}},
                   {"drafter", {{"name", "draft_model"}, {"model", "experiments/models/draft"}}},
                   {"workload", {{"prompts", "experiments/prompts.jsonl"}}}};
  const auto sources = sources_of(complete_run(document, registries, "test"), registries, "");
  EXPECT_EQ(sources, (Prints{{"experiments/models/draft", fingerprint("experiments/models/draft")},
                             {"experiments/models/target", fingerprint("experiments/models/target")},
                             {"experiments/prompts.jsonl", fingerprint("experiments/prompts.jsonl")}}));
  document["workload"]["prompts"] = "nowhere.jsonl", document["drafter"] = {{"name", "ngram"}};
  EXPECT_EQ(sources_of(complete_run(document, registries, "test"), registries, "").size(), 1u);
}

// A drafter's datastore, and a directory that only gives a shape.
TEST(Sources, AreFilesThatOptionsName) {
  const TemporaryFolder folder;
  folder.write("store.bin", "one");
  std::filesystem::create_directory(folder.path() / "shape");
  std::filesystem::copy("experiments/models/draft/config.json", folder.path() / "shape");
  Registries registries;
  register_drafters(registries), register_verifiers(registries);
  registries.drafters.add("stored", {"", "", {{"store", "path", nullptr, "a file"}}, nullptr, states(Needs())});
  const std::string store = (folder.path() / "store.bin").string(), shape = (folder.path() / "shape").string();
  const json run{{"target", {{"model", {{"random", shape}, {"seed", 1}, {"tokenizer", "experiments/models/target"}}}}},
                 {"drafter", {{"name", "stored"}, {"store", store}}},
                 {"policy", {{"name", "fixed"}}},
                 {"verifier", {{"name", "speculative_sampling"}}},
                 {"workload", {{"prompts", "nowhere.jsonl"}}}};
  const auto sources = sources_of(run, registries, "");
  EXPECT_EQ(sources, (Prints{{store, fingerprint(store)},
                             {shape + "/config.json", fingerprint(shape + "/config.json")},
                             {"experiments/models/target", fingerprint("experiments/models/target")}}));
}

// A GGUF file is a model, and a shape, by itself.
TEST(Sources, AreModelsInOneFile) {
  const std::string model = "tests/data/gguf/qwen2.gguf";
  Registries registries;
  register_drafters(registries), register_verifiers(registries);
  const json run{{"target", {{"model", {{"directory", model}, {"inflate", "tests/data/gguf/scaled.gguf"}}}}},
                 {"drafter", {{"name", "none"}}},
                 {"policy", {{"name", "fixed"}}},
                 {"verifier", {{"name", "speculative_sampling"}}},
                 {"workload", {{"prompts", "nowhere.jsonl"}}}};
  const auto sources = sources_of(run, registries, "");
  EXPECT_EQ(sources, (Prints{{model, fingerprint(model)},
                             {"tests/data/gguf/scaled.gguf", fingerprint("tests/data/gguf/scaled.gguf")}}));
  EXPECT_NE(sources.at(model), "");
}

class OriginsOfResults : public testing::Test {
 protected:
  using Change = std::function<void(Origin&)>;

  Origins origins(const Change& change) {
    const json run{{"name", "a"}, {"engine", {{"device", "auto"}}}},
        side = measure({{0, nullptr, 2, 1, 1, 1, 1, 1.0}}, {1}, {1}, {1}, {0, 1}, 1, 1);
    Result result = made(line(key_of(run), run, json::object(), {{{"baseline", side}, {"speculative", side}}}));
    result.origin.commit = "now";
    result.origin.machine = host_of();
    result.origin.sources = {{"p.jsonl", fingerprint(folder.path() / "p.jsonl")}};
    change(result.origin);
    std::vector<foretoken::Run> runs{{run, json::object(), key_of(run)}};
    if (unfinished) runs.push_back({json::object(), json::object(), "not measured"});
    return origins_of(runs, {{result.key, result.origin}}, folder.path() / "r.jsonl", folder.path(), "now",
                      [&](const json& engine) {
                        EXPECT_TRUE(engine.is_null() || engine == run["engine"]);
                        return here;
                      });
  }
  std::vector<std::string> told(const Change& change) { return origins(change).sentences; }
  static Change on(const std::string& device, const std::string& description) {
    return [=](Origin& o) { o.machine->device = device, o.machine->description = description; };
  }
  TemporaryFolder folder;
  MachineInfo here = host_of();
  bool unfinished = true;  // another run is still to be measured
};

TEST_F(OriginsOfResults, OfToday) {
  folder.write("p.jsonl", "one");
  EXPECT_TRUE(told([](Origin&) {}).empty());
}

TEST_F(OriginsOfResults, OfAnotherDayAreTold) {
  folder.write("p.jsonl", "one");
  const auto commit = told([](Origin& o) { o.commit = "0123456789ab"; }),
             machine = told([](Origin& o) { o.machine->cpu = "a calculator"; }),
             gone = told([](Origin& o) { o.sources["q.jsonl"] = "xxh3:0123456789abcdef"; });
  ASSERT_EQ(std::tuple(commit.size(), machine.size(), gone.size()), std::tuple(1u, 1u, 1u));
  EXPECT_TRUE(says(commit[0], "1 result in", "another commit", "is kept", "--results"));
  EXPECT_TRUE(says(machine[0], "another machine (a calculator", "is kept", "--results"));
  EXPECT_TRUE(says(gone[0], "q.jsonl, which is not there any more", "is kept", "--results"));
}

// "auto" is another device on a machine with a GPU, or where its driver has gone.
TEST_F(OriginsOfResults, OfAnotherKindOfDeviceAreNotAddedTo) {
  const Change on_gpu = on("cuda", "a GPU, fast");
  here.device = "cpu", here.description = "a CPU, 2 threads";
  EXPECT_TRUE(
      says(sentence_of([&] { origins(on_gpu); }), "r.jsonl", "the device cuda", "\"auto\" is cpu", "--results"));
  folder.write("p.jsonl", "one");
  const Change changed = [&](Origin& o) {
    on_gpu(o);
    o.sources = {{"p.jsonl", "xxh3:0123456789abcdef"}};
  };
  EXPECT_EQ(origins(changed).changed.size(), 1u) << "it is measured again";
  unfinished = false;  // nothing is added
  const auto told_only = told(on_gpu);
  ASSERT_EQ(told_only.size(), 1u);
  EXPECT_TRUE(says(told_only[0], "on another device (a GPU, fast)", "is kept", "--results"));
  EXPECT_TRUE(told(on("cpu", "a CPU, 2 threads")).empty());
}

TEST_F(OriginsOfResults, OfAnotherDeviceOfTheKindAreTold) {
  here.device = "cuda", here.description = "a GPU, fast; a note";
  EXPECT_TRUE(told(on("cuda", "a GPU, fast; another note")).empty());
  const auto other = told(on("cuda", "a larger GPU, fast"));
  ASSERT_EQ(other.size(), 1u);
  EXPECT_TRUE(says(other[0], "on another device (a larger GPU, fast)", "is kept", "--results"));
}

TEST_F(OriginsOfResults, OfOtherContentsAreMeasuredAgain) {
  folder.write("p.jsonl", "one");
  const Origins found = origins([](Origin& o) { o.sources = {{"p.jsonl", "xxh3:0123456789abcdef"}}; });
  EXPECT_EQ(found.changed, std::set<std::string>{key_of({{"name", "a"}, {"engine", {{"device", "auto"}}}})});
  ASSERT_EQ(found.sentences.size(), 1u);
  EXPECT_TRUE(says(found.sentences[0], "1 result in", "other contents of p.jsonl", "measured again"));
  EXPECT_TRUE(origins([](Origin&) {}).changed.empty());
}

}  // namespace
}  // namespace foretoken::test
