// Drafters whose model is a part of the target on a view of the target's cache: a part that leaves out nothing
// proposes exactly what the target would choose, whatever that cache went through; and nothing is lost by any part.
#include "drafters/growth.h"
#include "tests/framework/engine/engine_scenario.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

struct ViewsOfATarget : EngineScenario {
  long drafted = 0, accepted = 0, preempted = 0, rounds = 0, rounds_with_drafts = 0;

  // The whole target as a part of itself.
  void SetUp() override {
    models.target = tiny_model(*backend, "llama2");
    Entry<Drafter> entry{"", "", with_growth_options(),
                         [](const nlohmann::json& o, Host& h) {
                           return chosen_growth(o, "whole", h.target())
                               .make(h, RoundModel(h, h.view_of_target(part_of(h.target_model(), {}))));
                         },
                         [](const nlohmann::json& o, const ModelInfo& m) {
                           Needs needs = chosen_growth(o, "whole", m).needs;
                           needs.views_target = true;
                           return needs;
                         }};
    registries.drafters.add("whole", entry);
    configs.drafter = {{"name", "whole"}};
    configs.policy = {{"name", "fixed"}, {"length", 5}};
    options.pages = 128;
  }
  std::vector<Tokens> serve(std::vector<Request> requests) {
    const auto e = engine();
    std::vector<Tokens> outputs(requests.size());
    std::vector<SequenceId> ids;
    for (Request& r : requests) ids.push_back(e->submit(std::move(r)));
    while (!e->idle()) {
      const StepReport report = e->step();
      preempted += report.preempted;
      for (const SequenceReport& s : report.sequences) {
        drafted += s.drafted, accepted += s.accepted;
        rounds += !s.emitted.empty(), rounds_with_drafts += s.drafted > 0;
      }
      for (const Sequence& s : report.finished) {
        EXPECT_EQ(s.finish, Finish::length) << s.failure;
        outputs[std::size_t(std::ranges::find(ids, s.id) - ids.begin())] = s.tokens;
      }
    }
    return outputs;
  }
  static std::vector<Request> three() {
    return {request({1, 2, 3, 1, 2, 3, 1, 2}, 40, 0), request({7, 7, 7}, 33, 0), request({5, 6}, 30, 0)};
  }
  void expect_all_accepted(std::vector<Request> requests) {
    serve(std::move(requests));
    EXPECT_GT(drafted, 50);
    EXPECT_GT(2 * rounds_with_drafts, rounds);
    EXPECT_GE(accepted, drafted - 15);  // behind the end of an output no node is counted as accepted
  }
};

TEST_F(ViewsOfATarget, propose_what_the_target_chooses) { expect_all_accepted(three()); }

TEST_F(ViewsOfATarget, when_prompts_are_read_in_chunks_and_prefixes_are_shared) {
  options.step_rows = 8, options.batch = 2;
  const Tokens prompt{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
  expect_all_accepted({request(prompt, 40, 0), request(prompt, 40, 0), request(prompt, 40, 0)});
}

TEST_F(ViewsOfATarget, when_sequences_are_preempted) {
  options.pages = 40;
  expect_all_accepted(three());
  EXPECT_GT(preempted, 0);
}

TEST_F(ViewsOfATarget, in_a_quantized_cache) {
  models.target = tiny_model(*backend, "llama2", "auto", "int8");
  expect_all_accepted(three());
}

// More rows than the target has reserved: those behind have pages of their own, which go back.
TEST_F(ViewsOfATarget, in_trees_of_more_rows_than_are_verified) {
  configs.drafter = {{"name", "whole"}, {"growth", "dynamic"}, {"width", 4}, {"expand", 4}};
  configs.verifier = {{"name", "target_match"}};
  serve(three());
  EXPECT_GT(rounds_with_drafts, 20);
  EXPECT_GE(accepted, rounds_with_drafts - 3) << "the most probable token of the first level is in every tree";
}

TEST_F(ViewsOfATarget, sampled_outputs_are_those_without_a_draft_where_draws_are_coupled) {
  const auto sampled = [] { return std::vector<Request>{request({1, 2, 3, 1, 2}, 30, 1), request({7, 7, 7}, 33, 1)}; };
  configs.verifier = {{"name", "coupled"}};
  const auto with = serve(sampled());
  EXPECT_GE(accepted, drafted - 10);
  for (const nlohmann::json& other :
       {nlohmann::json{{"name", "none"}}, nlohmann::json{{"name", "layer_skip"}, {"attention", {1}}},
        nlohmann::json{{"name", "layer_skip"}, {"feed_forward", {0, 1}}},
        nlohmann::json{{"name", "early_exit"}, {"layers", 1}}}) {
    configs.drafter = other;
    EXPECT_EQ(serve(sampled()), with) << other;
  }
}

// Sinks and a window that have every page, and then fewer and fewer of them.
TEST_F(ViewsOfATarget, of_fewer_pages_propose_the_same_where_these_are_all) {
  configs.drafter = {{"name", "window"}, {"sinks", 0}, {"window", 64}};
  expect_all_accepted(three());
  configs.drafter = {{"name", "window"}, {"sinks", 24}, {"window", 24}};
  expect_all_accepted(three());
}

TEST_F(ViewsOfATarget, of_fewer_pages_lose_nothing) {
  const auto sampled = [] {
    return std::vector<Request>{request({1, 2, 3, 1, 2, 3, 1, 2, 5, 6, 7, 8}, 40, 1), request({7, 7, 7}, 33, 0)};
  };
  for (const char* model : {"llama2", "mistral"}) {
    models.target = tiny_model(*backend, model);
    configs.verifier = {{"name", "coupled"}};
    configs.drafter = {{"name", "none"}}, options.pages = 128, options.step_rows = 64;
    const auto without = serve(sampled());
    for (const char* growth : {"chain", "tree", "dynamic"}) {
      configs.drafter = {{"name", "window"}, {"sinks", 1}, {"window", 3}, {"growth", growth}};
      if (growth == std::string("tree")) configs.drafter["shape"] = {2, 1}, configs.drafter["cut"] = true;
      configs.verifier = {{"name", growth == std::string("dynamic") ? "target_match" : "coupled"}};
      for (const int pages : {128, 40}) {
        options.pages = pages, options.step_rows = pages == 40 ? 8 : 64;
        drafted = accepted = 0;
        const auto with = serve(sampled());
        EXPECT_EQ(with[1], without[1]) << configs.drafter;
        EXPECT_TRUE(growth == std::string("dynamic") || with[0] == without[0]) << configs.drafter;
        EXPECT_GT(accepted, 0) << configs.drafter;
        EXPECT_LT(accepted, drafted - 15) << "otherwise it reads everything: " << configs.drafter;
      }
    }
  }
}

TEST_F(ViewsOfATarget, bad_options_are_refused_in_one_sentence) {
  const auto refused = [&](const nlohmann::json& drafter) {
    configs.drafter = drafter;
    return sentence([&] { engine(); });
  };
  EXPECT_TRUE(says(refused({{"name", "layer_skip"}}), "leaves out nothing", "'attention'"));
  EXPECT_TRUE(says(refused({{"name", "layer_skip"}, {"attention", {2}}}), "attention of layer 2", "0 to 1"));
  EXPECT_TRUE(says(refused({{"name", "layer_skip"}, {"feed_forward", {-1}}}), "layer -1"));
  EXPECT_TRUE(says(refused({{"name", "layer_skip"}, {"attention", {"1"}}}), "numbers of layers"));
  EXPECT_TRUE(says(refused({{"name", "layer_skip"}, {"attention", {4294967297}}}), "4294967297 is none"));
  EXPECT_TRUE(says(refused({{"name", "early_exit"}}), "'layers'"));
  EXPECT_TRUE(says(refused({{"name", "early_exit"}, {"layers", 2}}), "has 2 layers"));
}

// A drafter that does not state that it views the cache.
TEST_F(ViewsOfATarget, must_be_stated) {
  Entry<Drafter> entry = registries.drafters.entries().at("whole");
  entry.traits = [](const nlohmann::json& o, const ModelInfo& m) { return chosen_growth(o, "whole", m).needs; };
  registries.drafters.replace("whole", entry);
  EXPECT_TRUE(says(sentence([&] { engine(); }), "Needs::views_target"));
}

}  // namespace
}  // namespace foretoken::test
