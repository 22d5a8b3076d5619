// What a policy is told in the rounds after it forgot everything: a policy that keeps one thing of a sequence that has
// ended, and acts on it when a report says so, is killed by the law `memory`, whichever part of the report it reads.
#include <algorithm>
#include <functional>
#include <set>

#include <gtest/gtest.h>

#include "experiments/conformance/law_table.h"
#include "kernels/reference/reference_backend.h"
#include "tests/support/states.h"

namespace foretoken::test {

using namespace conformance;

namespace {

using nlohmann::json;
using When = std::function<bool(const StepReport&, const SequenceReport&)>;

// Two levels; one, from when `when` holds of a report on a sequence whose id was forgotten before.
class Remembering : public LengthPolicy {
 public:
  explicit Remembering(When when) : when_(std::move(when)) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> all;
    for (const PastOnly& p : past) all.push_back(reminded_.contains(p.id) ? Budget{2, 1} : Budget{3, 2});
    return all;
  }
  void observe(const StepReport& report) override {
    for (const SequenceReport& r : report.sequences)
      if (forgotten_.contains(r.id) && when_(report, r)) reminded_.insert(r.id);
  }
  void forget(const Sequence& sequence) override { forgotten_.insert(sequence.id), reminded_.erase(sequence.id); }

 private:
  When when_;
  std::set<SequenceId> forgotten_, reminded_;
};

Finding found(const When& when) {
  Registries registries = all_registries();
  registries.policies.add(
      "remembering", entry_that<LengthPolicy>(states(Budget{.nodes = 3, .depth = 2}),
                                              [=](const json&, Host&) { return std::make_unique<Remembering>(when); }));
  auto requests = random_requests(8, 4, 12, 16, 6);
  ReferenceBackend backend;
  return policy_memory({{registries,
                         {{{"name", "draft_model"}, {"model", "table:other"}},
                          {{"name", "remembering"}},
                          {{"name", "speculative_sampling"}}}},
                        {.engine = {.batch = 6, .step_rows = 256, .page_rows = 2, .pages = 24, .check = true}},
                        backend,
                        table_models({.vocab = 4, .order = 2, .seed = 41}),
                        requests});
}

TEST(PolicyReports, WithoutAReminderThePolicyHolds) {
  const Finding f = found([](const StepReport&, const SequenceReport&) { return false; });
  EXPECT_TRUE(f.holds) << f.what;
  EXPECT_GT(f.seen.at("preemptions"), 0);
}

TEST(PolicyReports, EveryPartOfAReportReminds) {
  const std::vector<std::pair<const char*, When>> all{
      {"judged", [](const StepReport&, const SequenceReport& r) { return r.judged; }},
      {"drafted", [](const StepReport&, const SequenceReport& r) { return r.drafted == 2; }},
      {"depth", [](const StepReport&, const SequenceReport& r) { return r.depth == 2; }},
      {"accepted", [](const StepReport&, const SequenceReport& r) { return r.accepted == 2 && !r.rejected; }},
      {"rejected", [](const StepReport&, const SequenceReport& r) { return r.accepted == 0 && r.rejected; }},
      {"levels that accepted",
       [](const StepReport&, const SequenceReport& r) {
         return r.levels.size() == 2 && r.levels[1].children == 1 && r.levels[1].accepted == 0;
       }},
      {"a level that did not",
       [](const StepReport&, const SequenceReport& r) {
         return r.levels.size() == 1 && r.levels[0].children == 1 && r.levels[0].accepted == -1;
       }},
      {"emitted", [](const StepReport&, const SequenceReport& r) { return r.emitted.size() == 3; }},
      {"one emitted", [](const StepReport&, const SequenceReport& r) { return r.emitted.size() == 1; }},
      {"rows", [](const StepReport& s, const SequenceReport&) { return s.rows == 3; }},
      {"running", [](const StepReport& s, const SequenceReport&) { return s.running == 1; }}};
  for (const auto& [what, when] : all) {
    const Finding f = found(when);
    EXPECT_FALSE(f.holds) << what;
    EXPECT_NE(f.why.find("has ended and was forgotten, and a new one of this id, in its round 2,"), std::string::npos)
        << what << ": " << f.why;
  }
  // Nothing says what is not so.
  for (const When& never : std::vector<When>{
           [](const StepReport&, const SequenceReport& r) { return r.accepted == 1 || r.tested() > 2; },
           [](const StepReport&, const SequenceReport& r) { return r.rejected == (r.accepted == 2); },
           [](const StepReport& s, const SequenceReport& r) { return s.sequences.size() != 1 || r.prompt_rows > 0; },
           [](const StepReport&, const SequenceReport& r) { return int(r.levels.size()) != r.tested(); }})
    EXPECT_TRUE(found(never).holds);
}

}  // namespace
}  // namespace foretoken::test
