// A file of results may be older than what lies behind the paths of its runs: whoever resumes it is told.
#include "experiments/sweep/provenance.h"

#include <gtest/gtest.h>

#include "experiments/report/machine.h"
#include "experiments/sweep/run_document.h"
#include "tests/framework/text/temporary_folder.h"

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
  EXPECT_EQ(fingerprint(a.path()).size(), 16u);
  b.write("p.jsonl", "two"), b.write("README.md", "of no matter");
  EXPECT_NE(fingerprint(a.path() / "p.jsonl"), fingerprint(b.path() / "p.jsonl"));
  EXPECT_EQ(fingerprint(a.path()), fingerprint(b.path()));
  b.write("model.safetensors", std::string((3 << 20) - 1, 'w') + "v");
  EXPECT_NE(fingerprint(a.path()), fingerprint(b.path()));
  b.write("model.safetensors", std::string(3 << 20, 'w')), b.write("config.json", "{ }");
  EXPECT_NE(fingerprint(a.path()), fingerprint(b.path()));
  EXPECT_EQ(fingerprint(a.path() / "nowhere"), "");
}

TEST(Sources, AreThePromptsAndTheModels) {
  Registries registries;
  register_drafters(registries), register_verifiers(registries);
  json document = {{"target", {{"model", "experiments/models/target"}}},
                   {"drafter", {{"name", "draft_model"}, {"model", "experiments/models/draft"}}},
                   {"workload", {{"prompts", "experiments/prompts.jsonl"}}}};
  const json sources = sources_of(complete_run(document, registries, "test"), registries, "");
  EXPECT_EQ(sources, json({{"experiments/models/draft", fingerprint("experiments/models/draft")},
                           {"experiments/models/target", fingerprint("experiments/models/target")},
                           {"experiments/prompts.jsonl", fingerprint("experiments/prompts.jsonl")}}));
  document["workload"]["prompts"] = "nowhere.jsonl", document["drafter"] = {{"name", "ngram"}};
  EXPECT_EQ(sources_of(complete_run(document, registries, "test"), registries, "").size(), 1u);
}

class Origins : public testing::Test {
 protected:
  std::vector<std::string> told(const json& changes) {
    ResultsFile file(folder.path() / "r.jsonl");
    json line{{"schema", 1},           {"key", "a"},
              {"run", json::object()}, {"commit", "now"},
              {"machine", host_of()},  {"sources", {{"p.jsonl", fingerprint(folder.path() / "p.jsonl")}}}};
    line.merge_patch(changes);
    file.append(line);
    return other_origins({{json::object(), json::object(), "a"}, {json::object(), json::object(), "not measured"}},
                         file, folder.path(), "now");
  }
  TemporaryFolder folder;
};

TEST_F(Origins, OfToday) {
  folder.write("p.jsonl", "one");
  EXPECT_TRUE(told(json::object()).empty());
  EXPECT_TRUE(told({{"machine", nullptr}, {"sources", nullptr}}).empty()) << "a line of an older program";
}

TEST_F(Origins, OfAnotherDayAreTold) {
  folder.write("p.jsonl", "one");
  const auto commit = told({{"commit", "0123456789ab"}}), machine = told({{"machine", {{"cpu", "a calculator"}}}}),
             file = told({{"sources", {{"p.jsonl", "0123456789abcdef"}}}});
  ASSERT_EQ(std::tuple(commit.size(), machine.size(), file.size()), std::tuple(1u, 1u, 1u));
  EXPECT_TRUE(says(commit[0], "1 result in", "another commit", "--results"));
  EXPECT_TRUE(says(machine[0], "another machine (a calculator", "--results"));
  EXPECT_TRUE(says(file[0], "other contents of p.jsonl", "--results"));
}

}  // namespace
}  // namespace foretoken::test
