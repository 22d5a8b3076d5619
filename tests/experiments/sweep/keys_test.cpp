// Keys of runs: which may be null, how they are listed for a terminal, which verifiers a trace may follow; and stop
// strings, byte by byte.
#include <set>

#include <gtest/gtest.h>

#include "experiments/session/request.h"
#include "experiments/session/run_document.h"
#include "tests/oracle/scene.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

struct KeysOfRuns : testing::Test {
  KeysOfRuns() { register_drafters(registries), register_verifiers(registries); }
  json complete(const std::string& pointer = "", const json& value = {}) const {
    json document{{"target", {{"model", "m"}}}, {"workload", {{"prompts", "p"}}}};
    if (!pointer.empty()) document[json::json_pointer(pointer)] = value;
    return complete_run(document, registries, "doc");
  }
  std::string refusal(const std::string& pointer, const json& value) const {
    return sentence_of([&] { complete(pointer, value); });
  }
  Registries registries;
};

TEST_F(KeysOfRuns, NullIsAValueOfOptionalOnesAlone) {
  const std::set<std::string> optional{
      "/target/inflate",  "/engine/memory_fraction", "/workload/system",     "/workload/start",
      "/workload/date",   "/workload/rate",          "/workload/ttft_limit", "/workload/tpot_limit",
      "/trace",           "/workload/prompt_tokens", "/workload/rates",      "/sampling/response_format",
      "/parallel/tensor", "/parallel/expert"};
  for (const RunKey& key : run_keys()) {
    const std::string sentence = refusal(key.pointer, nullptr);
    EXPECT_EQ(sentence.empty(), optional.contains(key.pointer)) << key.pointer << ": " << sentence;
    EXPECT_TRUE(sentence.empty() || says(sentence, "'" + key.pointer + "' must be " + key.type, "not null"))
        << sentence;
  }
}

TEST_F(KeysOfRuns, TwoAreRequired) {
  std::set<std::string> required;
  for (const RunKey& key : run_keys())
    if (key.allowed.required) required.insert(key.pointer);
  EXPECT_EQ(required, (std::set<std::string>{"/target/model", "/workload/prompts"}));
}

// Those whose values have bounds of their own, at and just beyond them.
TEST_F(KeysOfRuns, BoundsAreValuesOrNot) {
  struct Bound {
    const char* pointer;
    json fits, does_not;
  };
  for (const Bound& b : std::vector<Bound>{{"/sampling/top_p", 1, 1.0001},
                                           {"/sampling/top_p", 1e-9, 0},
                                           {"/sampling/min_p", 0, -1e-9},
                                           {"/sampling/min_p", 0.999, 1},
                                           {"/sampling/top_k", 0, -1},
                                           {"/sampling/samples", 1, 0},
                                           {"/sampling/samples", 1024, 1025},
                                           {"/sampling/repetition_penalty", 0.01, 0.009},
                                           {"/sampling/frequency_penalty", -100, -100.1},
                                           {"/sampling/presence_penalty", 100, 100.1},
                                           {"/engine/batch", 1, 0},
                                           {"/engine/memory_fraction", 0.999, 1},
                                           {"/engine/memory_fraction", 0.001, 0},
                                           {"/engine/page_rows", 4096, 4097},
                                           {"/measure/repeats", 1, 0},
                                           {"/measure/seconds", 0, -0.1},
                                           {"/workload/max_new_tokens", 1, 0}}) {
    EXPECT_EQ(refusal(b.pointer, b.fits), "") << b.pointer << " " << b.fits;
    EXPECT_TRUE(says(refusal(b.pointer, b.does_not), b.pointer, b.does_not.dump())) << b.pointer << " " << b.does_not;
  }
}

TEST_F(KeysOfRuns, AreListedForATerminal) {
  const std::string text = describe_keys(registries, false);
  for (const char* part :
       {"/target/model  (model; required)\n    Hugging Face directory",
        "\n/target/inflate  (shape; default null)\n    shape",
        "\n/sampling/top_p  (number, > 0, <= 1; default 1)\n    ",
        "\n/engine/device  (string, auto, cpu, reference, cuda; default \"auto\")\n    where it runs",
        "\n/workload/prompts  (path; required)\n    JSON lines", "\n/engine/check  (boolean; default false)\n",
        "\ndrafter none: ", "\npolicy fixed: ", "\nverifier speculative_sampling: "})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_EQ(text.find("default required"), std::string::npos);
  EXPECT_EQ(text.find("`required`"), std::string::npos);
  EXPECT_EQ(text.find('|'), std::string::npos) << "no Markdown";
}

// Before anything is loaded, as far as drafter and verifier say it themselves.
TEST_F(KeysOfRuns, ATraceFollowsVerifiersThatCanJudgeItsNodes) {
  const auto traced = [&](const json& drafter, const json& verifiers) {
    json document{{"target", {{"model", "m"}}},
                  {"workload", {{"prompts", "p"}}},
                  {"drafter", drafter},
                  {"trace", {{"file", "t.jsonl"}, {"verifiers", verifiers}}}};
    return sentence_of([&] { complete_run(document, registries, "doc"); });
  };
  const json chain{{"name", "draft_model"}, {"model", "m"}},
      tree{{"name", "draft_tree"}, {"model", "m"}, {"shape", {2, 2}}, {"draws", "without_replacement"}};
  EXPECT_EQ(traced(chain, {"speculative_sampling", "block_verification"}), "");
  EXPECT_TRUE(says(traced(chain, {"coupled"}), "doc", "the acceptance of 'coupled' follows from the noise"));
  const std::string sentence = traced(tree, {"block_verification", "k_seq"});
  EXPECT_TRUE(
      says(sentence, "doc", "the verifier 'k_seq' of /trace/verifiers takes no nodes drawn", "'without_replacement'"))
      << sentence;
  EXPECT_TRUE(says(traced(chain, {"nobody"}), "doc", "nobody"));
}

// Every token is a byte.
std::optional<int> stopped(const std::string& text, const std::vector<std::string>& stops, std::size_t chunk) {
  const std::vector<Token> tokens(text.begin(), text.end());
  const StopRule rule = stop_at(oracle::bytes(), stops);
  for (std::size_t seen = 0; seen < tokens.size(); seen += chunk)
    if (const auto found = rule(std::span(tokens).first(std::min(tokens.size(), seen + chunk)), int(seen)))
      return found;
  return std::nullopt;
}

TEST(StopStrings, EndWithTheByteThatCompletesTheFirst) {
  for (std::size_t chunk = 1; chunk < 12; ++chunk) {
    EXPECT_EQ(stopped("xxabcx", {"abc"}, chunk), 5) << chunk;
    EXPECT_EQ(stopped("abc", {"abc"}, chunk), 3) << chunk;
    EXPECT_EQ(stopped("aababc", {"abc"}, chunk), 6) << chunk;
    EXPECT_EQ(stopped("abxbc", {"abc"}, chunk), std::nullopt) << chunk;
    EXPECT_EQ(stopped("ab", {"abc"}, chunk), std::nullopt) << chunk;
    EXPECT_EQ(stopped("xabcd", {"abcd", "bc"}, chunk), 4) << "the shorter is complete before\n" << chunk;
    EXPECT_EQ(stopped("some longer text z", {"z"}, chunk), 18) << chunk;
    EXPECT_EQ(stopped("some longer text", {"longer text"}, chunk), 16) << chunk;
  }
  EXPECT_FALSE(stop_at(oracle::bytes(), {}));
}

// A request that was preempted shows its rule all of its tokens again.
TEST(StopStrings, BeginAnewWhereTokensCameThatTheyHadNotSeen) {
  const std::string text = "xxabcx";
  const std::vector<Token> tokens(text.begin(), text.end());
  const StopRule rule = stop_at(oracle::bytes(), {"abc"});
  EXPECT_EQ(rule(std::span(tokens).first(3), 0), std::nullopt);
  EXPECT_EQ(rule(std::span(tokens).first(5), 4), 5) << "it saw three, and is told of four";
  const StopRule other = stop_at(oracle::bytes(), {"abc"});
  EXPECT_EQ(other(std::span(tokens).first(4), 0), std::nullopt);
  EXPECT_EQ(other(std::span(tokens).first(3), 2), std::nullopt);
  EXPECT_EQ(other(tokens, 3), 5);
}

}  // namespace
}  // namespace foretoken::test
