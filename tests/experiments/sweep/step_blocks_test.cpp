// Blocks of steps that do the same, and what a line says where a machine had two speeds.
#include <chrono>
#include <thread>
#include <vector>

#include "experiments/sweep/measure_recorder.h"
#include "tests/experiments/sweep/demo_runs.h"
#include "tests/experiments/sweep/tries.h"
#include "tests/support/states.h"

namespace foretoken::test {
namespace {

TEST(StepBlocks, AreMediansOfConsecutiveStepsOfTheMostFrequentRows) {
  StepBlocks blocks;
  EXPECT_TRUE(blocks.times().seconds.empty());
  for (int i = 0; i < 17; ++i) {
    blocks.add(4, i < 8 ? 1 + (i == 3) * 100 : 2, i);
    if (i < 10) blocks.add(3, 50, 0);
  }
  EXPECT_EQ(json({{"rows", blocks.times().rows},
                  {"steps", blocks.times().steps},
                  {"seconds", blocks.times().seconds},
                  {"context", blocks.times().context}}),
            json({{"rows", 4}, {"steps", 8}, {"seconds", {1.0, 2.0}}, {"context", {3.5, 11.5}}}))
      << "the last step fills no block";
}

TEST(StepBlocks, AreAtMostThirtyTwo) {
  for (const int steps : {255, 256, 257, 1000, 4321}) {
    StepBlocks blocks;
    for (int i = 0; i < steps; ++i) blocks.add(1, 1 + i, 0);
    const BlockTimes found = blocks.times();
    const long size = found.steps, count = long(found.seconds.size());
    EXPECT_EQ(size, std::max(8, (steps + 31) / 32)) << steps;
    EXPECT_EQ(count, steps / size) << steps;
    EXPECT_LE(count, 32) << steps;
    EXPECT_EQ(found.seconds[0], 1 + (size - 1) / 2.0) << steps;
  }
}

// Makes every step of two sequences take 10 ms longer, or 20 ms in every other forty steps.
class Sleepy final : public Drafter {
 public:
  Sleepy(Backend& backend, bool changes) : backend_(backend), changes_(changes) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override { return rooted(backend_, requests); }
  void observe(std::span<const Outcome>) override {
    const bool slow = changes_ && outcomes_++ / 80 % 2 == 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(slow ? 10 : 5));
  }

 private:
  Backend& backend_;
  bool changes_;
  int outcomes_ = 0;
};

Registries with_sleepy() {
  Registries registries;
  register_drafters(registries), register_verifiers(registries);
  for (const bool changes : {true, false})
    registries.drafters.add(changes ? "changes" : "steady",
                            entry_that<Drafter>(states(Needs()), [=](const json&, Host& host) {
                              return std::make_unique<Sleepy>(host.backend(), changes);
                            }));
  return registries;
}

json measured(Workbench& bench, const char* drafter) {
  json run = demo({{"drafter", {{"name", drafter}, {"model", nullptr}}},
                   {"workload", {{"max_new_tokens", 24}}},
                   {"measure", {{"warmup", false}}}});
  const json document = complete_run(run, bench.registries(), "test");
  json line = to_json(measure_run({document, json::object(), key_of(document)}, bench, "", [](double) {}));
  EXPECT_FALSE(line.contains("error")) << line["error"];
  return line;
}

// Of speculation: the baseline has another drafter. Other work on the machine may hide the two, or look like two, but
// not in every try.
TEST(TwoSpeedsOfARun, AreInItsLine) {
  Workbench bench(with_sleepy());
  const auto slower = [&](const char* drafter) {
    const json line = measured(bench, drafter);
    for (const json& side : line["two_speeds"])
      if (side["side"] == "speculative") return side;
    return json();
  };
  const auto two = [](const json& found) {
    return !found.is_null() && found["ratio"] > 1.5 && found["ratio"] < 2.1 && found["slower"] > 0.3 &&
           found["slower"] < 0.6;
  };
  EXPECT_TRUE(in_one_of(5, [&] { return slower("changes"); }, two));
  EXPECT_TRUE(in_one_of(5, [&] { return slower("steady"); }, [](const json& found) { return found.is_null(); }));
}

}  // namespace
}  // namespace foretoken::test
