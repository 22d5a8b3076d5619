// Which pages snapkv and h2o choose, by masses that a device makes up; that nothing is lost; and bad budgets.
#include <map>

#include "kernels/reference/reference_backend.h"
#include "tests/framework/engine/engine_scenario.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

// The mass of a page by its number, and by how many forwards asked for masses before; else 0.
class Weighted final : public ReferenceBackend {
 public:
  std::vector<std::map<int, float>> masses;  // of each forward; the last one's for those behind it
  int layers = 2, calls = 0;
  std::vector<int> rows;                        // of each forward
  std::vector<std::pair<int, int>> selections;  // candidates and how many are taken, of the first sequence
  Tensor select_pages(const Tensor& q, const KvLayer& kv, const Layout& layout) override {
    selections.emplace_back(*layout.selection.counts.data<std::int32_t>(),
                            *layout.selection.chosen.data<std::int32_t>());
    return ReferenceBackend::select_pages(q, kv, layout);
  }
  Tensor attention_mass(const Tensor& q, const KvLayer&, const Layout& layout, const AttentionRules&) override {
    Tensor all = Tensor::host({layout.sequences, layout.table_width}, DType::f32);
    std::ranges::fill(all.values<float>(), 0.0f);
    const std::size_t forward = std::min(std::size_t(calls++ / layers), masses.size() - 1);
    if (calls % layers == 0) rows.push_back(int(q.dim(0)));
    for (const auto& [page, mass] : masses[forward])
      if (page < layout.table_width) all.data<float>()[page] = mass;
    return all;
  }
};

// Pages of two rows, a prompt of 41 tokens.
struct ChosenPages : EngineScenario {
  Weighted* weighted = nullptr;

  void SetUp() override {
    auto made = std::make_unique<Weighted>();
    weighted = made.get(), backend = std::move(made);
    models.target = tiny_model(*backend, "llama2");
    options.pages = 256;
    configs.policy = {{"name", "fixed"}, {"length", 2}};
    configs.verifier = {{"name", "target_match"}};
  }
  static Tokens prompt() {
    Tokens all;
    for (int i = 0; i < 41; ++i) all.push_back(Token(i * 7 % 90 + 1));
    return all;
  }
  // What the drafter's view reads, before its last confirmed rows, when `generated` tokens were there; by that number.
  std::map<int, std::vector<int>> choices(const nlohmann::json& drafter) {
    configs.drafter = drafter;
    const auto e = engine();
    const SequenceId id = e->submit(request(prompt(), 20, 0));
    std::map<int, std::vector<int>> all;
    int generated = 0;
    while (!e->idle()) {
      const StepReport report = e->step();
      for (const auto& c : e->host().caches())
        if (c->cache().knows(id) && !c->cache().held(id).chosen.empty()) all[generated] = c->cache().held(id).chosen;
      for (const SequenceReport& s : report.sequences) generated += int(s.emitted.size());
    }
    return all;
  }
  static std::vector<int> with_newer(std::vector<int> pages, int from, int generated) {
    for (int page = from; page < (40 + generated) / 2; ++page) pages.push_back(page);
    return pages;
  }
};

// Ten pages: the first, the last two of the 20 before the choice, and of the others those with the most mass.
TEST_F(ChosenPages, of_snapkv_are_those_with_the_most_mass_at_the_last_choice) {
  weighted->masses = {{{3, 9.0f}, {5, 7.0f}, {11, 8.0f}, {0, 50.0f}, {4, 1.0f}}, {{7, 3.0f}, {3, 1.0f}, {14, 2.0f}}};
  const auto all =
      choices({{"name", "snapkv"}, {"budget", 12}, {"sinks", 1}, {"window", 4}, {"observe", 3}, {"every", 8}});
  ASSERT_GE(all.size(), 4u);
  for (const auto& [generated, pages] : all) {
    if (generated <= 8) {
      EXPECT_EQ(pages, with_newer({0, 3, 5, 11, 18, 19}, 20, generated)) << generated;
    } else if (generated <= 16) {  // 49 tokens before the choice: 24 pages
      EXPECT_EQ(pages, with_newer({0, 3, 7, 14, 22, 23}, 24, generated)) << generated;
    }
  }
  EXPECT_TRUE(all.begin()->first <= 8 && all.rbegin()->first > 8) << "both choices are seen";
  ASSERT_GE(weighted->rows.size(), 2u);
  EXPECT_EQ(weighted->rows[0], 3) << "tokens 38 to 40, which begin a page";
  EXPECT_EQ(weighted->rows[1], 3) << "tokens 46 to 48, likewise";
}

TEST_F(ChosenPages, of_h2o_are_those_with_the_most_mass_in_all) {
  weighted->masses = {{{3, 9.0f}, {5, 7.0f}, {11, 8.0f}}, {{7, 7.5f}, {5, 0.2f}, {2, 1.0f}}};
  const auto all = choices({{"name", "h2o"}, {"budget", 10}, {"window", 4}, {"observe", 3}, {"every", 8}});
  for (const auto& [generated, pages] : all) {
    if (generated <= 8) {
      EXPECT_EQ(pages, with_newer({3, 5, 11, 18, 19}, 20, generated)) << generated;
    } else if (generated <= 16) {
      EXPECT_EQ(pages, with_newer({3, 7, 11, 22, 23}, 24, generated)) << generated;
    }
  }
  EXPECT_TRUE(all.begin()->first <= 8 && all.rbegin()->first > 8) << "both choices are seen";
  ASSERT_GE(weighted->rows.size(), 2u);
  EXPECT_EQ(weighted->rows[0], 2) << "tokens 38 and 39, a page";
  EXPECT_EQ(weighted->rows[1], 8) << "tokens 40 to 47";
}

// Where a round has passed several choices, as after a preemption, what each of them accumulates is read in one go.
TEST_F(ChosenPages, of_several_choices_wait_once_for_the_device) {
  weighted->masses = {{{3, 9.0f}}};
  configs.drafter = {{"name", "h2o"}, {"budget", 38}, {"window", 30}, {"observe", 3}, {"every", 1}};
  configs.policy["length"] = 4;
  const auto e = engine();
  e->submit(request(prompt(), 24, 0));
  std::size_t most = 0;
  while (!e->idle()) {
    const std::size_t before = weighted->rows.size();
    const StepReport report = e->step();
    const std::size_t forwards = weighted->rows.size() - before;
    most = std::max(most, forwards);
    EXPECT_LE(report.waits, forwards > 0 ? 2 : 1);
  }
  EXPECT_GT(most, 1u) << "several spans in one round";
}

// No mass is asked for where the budget has every page, and the draft is then the target.
TEST_F(ChosenPages, of_a_large_budget_are_all) {
  for (const char* name : {"snapkv", "h2o", "quest"}) {
    configs.drafter = {{"name", name}, {"budget", 64}};
    if (name != std::string("quest")) configs.drafter["window"] = 4, configs.drafter["every"] = 8;
    const auto e = engine();
    e->submit(request(prompt(), 20, 0));
    long drafted = 0, accepted = 0;
    while (!e->idle())
      for (const SequenceReport& s : e->step().sequences) drafted += s.drafted, accepted += s.accepted;
    EXPECT_GT(drafted, 10);
    EXPECT_GE(accepted, drafted - 2) << "behind the end of an output no node is counted as accepted";
  }
  EXPECT_EQ(weighted->calls, 0);
}

// Quest reads so many whole pages, and what is newer than the last whole one.
TEST_F(ChosenPages, of_quest_are_as_many_as_its_budget_has) {
  const auto all = choices({{"name", "quest"}, {"budget", 11}});
  ASSERT_GE(all.size(), 4u);
  for (const auto& [generated, pages] : all) EXPECT_EQ(pages.size(), 6u) << generated;
  ASSERT_GT(weighted->selections.size(), 8u);
  EXPECT_EQ(weighted->selections.front(), std::pair(20, 6)) << "in each layer, of all whole pages";
  for (const auto& [candidates, taken] : weighted->selections) EXPECT_TRUE(candidates >= 20 && taken == 6);
}

TEST_F(ChosenPages, of_quest_need_a_target_without_a_window) {
  models.target = tiny_model(*backend, "mistral");
  configs.drafter = {{"name", "quest"}};
  EXPECT_TRUE(says(sentence([&] { engine(); }), "'quest'", "its last 9 positions; choose another drafter"));
  models.target = tiny_model(*backend, "gemma2");
  EXPECT_TRUE(says(sentence([&] { engine(); }), "'quest'", "its last 9 positions in some layers; choose another"));
}

// The pool has pages for the prompt and the target's rows, but none to read tokens again.
TEST_F(ChosenPages, are_not_made_without_pages_for_the_tokens_that_are_read_again) {
  weighted->masses = {{}};
  options.pages = 24;
  configs.drafter = {{"name", "snapkv"}, {"budget", 12}, {"window", 4}, {"observe", 30}, {"every", 8}};
  const auto e = engine();
  e->submit(request(prompt(), 4, 0));
  int lacking = 0;
  while (!e->idle())
    for (const SequenceReport& s : e->step().sequences) lacking += s.no_draft == NoDraft::pages;
  EXPECT_GT(lacking, 0);
  EXPECT_EQ(weighted->calls, 0);
}

TEST_F(ChosenPages, of_a_budget_below_sinks_and_window_are_refused) {
  configs.drafter = {{"name", "snapkv"}, {"budget", 16}, {"sinks", 4}, {"window", 13}};
  EXPECT_TRUE(says(sentence([&] { engine(); }), "'snapkv'", "a budget of 16", "'budget'", "'window'"));
  configs.drafter = {{"name", "h2o"}, {"budget", 16}, {"window", 17}};
  EXPECT_TRUE(says(sentence([&] { engine(); }), "'h2o'", "a budget of 16"));
  configs.drafter["window"] = 16, weighted->masses = {{}};
  EXPECT_NO_THROW(engine());
}

}  // namespace
}  // namespace foretoken::test
