// What components are told about the past: the outcomes that a drafter observes, and what a policy gets before and
// after a round, of trees whose acceptance is known in advance.
#include <set>

#include "tests/oracle/scene.h"

namespace foretoken::oracle {
namespace {

// The output is 1, 2, ..., 15, 0, 1, ...: token t is followed by t + 1.
Token after(Token t) { return (t + 1) % 16; }
Token wrong(Token t) { return (t + 5) % 16; }

// A tree for a round: of each node its parent and whether it is the right token after it.
struct Node {
  int parent;
  bool right;
};
using Shape = std::vector<Node>;

// What is known of a round with such a tree.
struct Known {
  Shape shape;
  std::vector<int> path;                         // accepted nodes
  int depth, tested;                             // levels
  std::vector<std::pair<int, int>> levels = {};  // children, and the accepted one's place or -1
};
const std::vector<Known> kRounds{
    {{{0, true}, {1, true}, {2, true}}, {1, 2, 3}, 3, 3, {{1, 0}, {1, 0}, {1, 0}}},
    {{{0, true}, {1, false}, {2, true}, {3, true}}, {1}, 4, 2, {{1, 0}, {1, -1}}},
    {{{0, false}, {0, false}, {0, true}, {3, false}, {3, true}, {1, true}, {6, true}}, {3, 5}, 3, 2, {{3, 2}, {2, 1}}},
    {{{0, false}, {1, true}, {2, true}, {3, true}}, {}, 4, 1, {{1, -1}}},
    {{}, {}, 0, 0, {}},
};

struct Recorded {
  std::vector<std::pair<SequenceId, std::vector<int>>> outcomes;  // of Drafter::observe: sequence, accepted nodes
  std::vector<int> lengths;                                       // of the sequences then
  std::vector<Tokens> emitted;
  std::vector<std::size_t> together;  // outcomes of each call
  std::set<SequenceId> drafter_forgot, policy_forgot;
  int while_running = 0;  // calls of Drafter::forget
  std::map<SequenceId, std::vector<PastOnly>> past;
  std::map<SequenceId, std::vector<SequenceReport>> reports;
  long steps = 0;
};

// Round r of a sequence has the tree kRounds[(r + id) % 5].
const Known& round_of(SequenceId id, std::size_t round) { return kRounds[(round + id) % kRounds.size()]; }

class Knowing : public Drafter {
 public:
  Knowing(Backend& backend, Recorded& recorded) : backend_(backend), recorded_(recorded) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      const DraftRequest& r = requests[i];
      Tokens tokens{r.sequence->last()};
      if (r.budget.nodes < 9 || r.budget.depth < 5) continue;  // a bare root
      for (const auto& [parent, right] : round_of(r.sequence->id, rounds_[r.sequence->id]).shape) {
        const Token above = tokens[std::size_t(parent)];
        tokens.push_back(right ? after(above) : Token((wrong(above) + int(tokens.size())) % 16));
        trees[i].guess(parent, tokens.back());
      }
    }
    return trees;
  }
  void observe(std::span<const Outcome> outcomes) override {
    recorded_.together.push_back(outcomes.size());
    for (const Outcome& o : outcomes) {
      ++rounds_[o.sequence->id];
      recorded_.outcomes.push_back({o.sequence->id, {o.verdict->path, o.verdict->path + o.verdict->length}});
      recorded_.lengths.push_back(o.sequence->length());
      recorded_.emitted.push_back({o.verdict->tokens, o.verdict->tokens + o.verdict->length + 1});
      EXPECT_EQ(*o.tree->known.row<Token>(0), (*o.verdict->tokens + 15) % 16) << "the outcome is of another tree";
    }
  }
  void forget(const Sequence& s) override {
    recorded_.drafter_forgot.insert(s.id), recorded_.while_running += s.running();
  }

 private:
  Backend& backend_;
  Recorded& recorded_;
  std::map<SequenceId, std::size_t> rounds_;
};

class Watching : public LengthPolicy {
 public:
  explicit Watching(Recorded& recorded) : recorded_(recorded) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    for (const PastOnly& p : past) recorded_.past[p.id].push_back(p);
    return std::vector<Budget>(past.size(), Budget{9, 5});
  }
  void observe(const StepReport& report) override {
    ++recorded_.steps;
    for (const SequenceReport& r : report.sequences) recorded_.reports[r.id].push_back(r);
  }
  void forget(const Sequence& s) override {
    EXPECT_TRUE(recorded_.policy_forgot.insert(s.id).second && !s.running()) << "it comes back, or came before";
  }

 private:
  Recorded& recorded_;
};

struct Past : ::testing::Test {
  Recorded recorded;
  long steps = 0, preempted = 0;
  std::map<SequenceId, Sequence> done;

  void run(int requests, int max_new_tokens, int pages = 256) {
    Tokens next(16);
    for (Token t = 0; t < 16; ++t) next[std::size_t(t)] = after(t);
    Scene scene(std::make_shared<HandModel>(followed_by(next)));
    scene.registries.drafters.add(
        "knowing", {"",
                    "",
                    {},
                    [this](const json&, Host& host) { return std::make_unique<Knowing>(host.backend(), recorded); },
                    [](const json&, const ModelInfo&) { return Needs{.proposes = {Drawn::certain}, .learns = true}; }});
    scene.registries.policies.add("watching",
                                  {"",
                                   "",
                                   {},
                                   [this](const json&, Host&) { return std::make_unique<Watching>(recorded); },
                                   [](const json&, const ModelInfo&) { return Budget{9, 5}; }});
    scene.configs = {{{"name", "knowing"}}, {{"name", "watching"}}, {{"name", "speculative_sampling"}}};
    scene.options.pages = pages;
    const auto engine = scene.engine();
    for (int i = 0; i < requests; ++i) {
      Request r;
      r.prompt = {Token(i), Token(i)}, r.limits.max_new_tokens = max_new_tokens;
      engine->submit(std::move(r));
    }
    done = serve(*engine, [this](const StepReport& report) { ++steps, preempted += report.preempted; });
  }
};

TEST_F(Past, a_drafter_observes_every_verified_tree_once) {
  run(3, 40);
  EXPECT_EQ(std::set<std::size_t>(recorded.together.begin(), recorded.together.end()), std::set<std::size_t>{1});
  std::map<SequenceId, std::size_t> rounds;
  std::map<SequenceId, Tokens> outputs;
  for (std::size_t i = 0; i < recorded.outcomes.size(); ++i) {
    const auto& [id, path] = recorded.outcomes[i];
    Tokens& output = outputs[id];
    if (output.size() < 34) {  // the last rounds have smaller budgets
      EXPECT_EQ(path, round_of(id, rounds[id]).path) << "sequence " << id << ", round " << rounds[id];
    }
    EXPECT_EQ(recorded.emitted[i].size(), path.size() + 1);
    output.insert(output.end(), recorded.emitted[i].begin(), recorded.emitted[i].end());
    EXPECT_EQ(recorded.lengths[i], 2 + int(output.size())) << "before its tokens were appended";
    ++rounds[id];
  }
  ASSERT_EQ(done.size(), 3u);
  for (const auto& [id, s] : done) EXPECT_EQ(outputs[id], output_of(s));
}

TEST_F(Past, a_policy_is_told_what_was_drafted_tested_and_accepted) {
  run(3, 40);
  for (const auto& [id, past] : recorded.past) {
    int tested = 0, accepted = 0, length = 2, last_accepted = 0, last_drafted = 0;
    for (std::size_t round = 0; round < past.size() && length < 36; ++round) {
      SCOPED_TRACE("sequence " + std::to_string(id) + ", round " + std::to_string(round));
      const PastOnly& p = past[round];
      EXPECT_EQ(p.rounds, int(round));
      EXPECT_EQ(p.batch, 3);
      EXPECT_EQ(p.length, length);
      EXPECT_EQ(p.drafted, last_drafted);
      EXPECT_EQ(p.accepted, last_accepted);
      EXPECT_DOUBLE_EQ(p.acceptance, tested ? double(accepted) / tested : -1);
      const Known& known = round_of(id, round);
      last_accepted = int(known.path.size()), last_drafted = int(known.shape.size());
      tested += known.tested, accepted += last_accepted, length += last_accepted + 1;
    }
    EXPECT_GT(tested, 10);
  }
}

TEST_F(Past, a_policy_observes_every_step_and_its_levels) {
  run(3, 40);
  EXPECT_EQ(recorded.steps, steps);
  for (const auto& [id, reports] : recorded.reports) {
    int kept = 0;
    for (std::size_t round = 0; round < reports.size() && kept < 34; ++round) {
      SCOPED_TRACE("sequence " + std::to_string(id) + ", round " + std::to_string(round));
      const SequenceReport& r = reports[round];
      const Known& known = round_of(id, round);
      EXPECT_TRUE(r.judged);
      EXPECT_EQ(r.drafted, int(known.shape.size()));
      EXPECT_EQ(r.depth, known.depth);
      EXPECT_EQ(r.accepted, int(known.path.size()));
      EXPECT_EQ(r.tested(), known.tested);
      EXPECT_EQ(r.emitted.size(), known.path.size() + 1);
      std::vector<std::pair<int, int>> levels;
      for (const TestedLevel& level : r.levels) levels.push_back({level.children, level.accepted});
      EXPECT_EQ(levels, known.levels);
      kept += int(r.emitted.size());
    }
  }
}

TEST_F(Past, what_ended_is_forgotten_by_both) {
  run(6, 20);
  const std::set<SequenceId> all{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(recorded.drafter_forgot, all);
  EXPECT_EQ(recorded.policy_forgot, all);
}

TEST_F(Past, what_is_preempted_is_forgotten_by_the_drafter_alone) {
  run(4, 30, 40);
  EXPECT_GT(preempted, 0);
  EXPECT_GE(recorded.while_running, preempted);
  EXPECT_EQ(recorded.policy_forgot.size(), 4u);
  for (const auto& [id, s] : done)
    for (int i = 0; i < s.generated(); ++i)
      ASSERT_EQ(output_of(s)[std::size_t(i)], (Token(id) + i) % 16) << "sequence " << id;
}

// A bare root or an untested level says nothing about acceptance.
TEST_F(Past, acceptance_is_unknown_until_a_level_was_tested) {
  run(4, 12);
  EXPECT_EQ(round_of(4, 0).shape.size(), 0u);
  const std::vector<PastOnly>& past = recorded.past.at(4);
  EXPECT_EQ(past.at(0).acceptance, -1);
  EXPECT_EQ(past.at(1).acceptance, -1) << "its first tree was a bare root";
  EXPECT_EQ(past.at(1).rounds, 1);
  EXPECT_EQ(past.at(2).acceptance, 1) << "three levels were tested and accepted";
}

}  // namespace
}  // namespace foretoken::oracle
