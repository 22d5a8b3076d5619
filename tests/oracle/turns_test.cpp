// Whose turn it is: rows, pages and places in the queues of the scheduler, on scenes by hand and in whole random runs;
// what a preemption gives back in an engine.
#include <set>

#include "framework/engine/scheduler.h"
#include "tests/oracle/scene.h"

namespace foretoken::oracle {
namespace {

using Ids = std::vector<SequenceId>;

// A second account of the memory: pages of `page` rows, of which a sequence holds what its cached and reserved rows
// fill.
class Pages final : public Scheduler::Memory {
 public:
  int page = 1, pages = 1000;
  std::map<SequenceId, int> cached, reserved;  // rows; what is not cached of a sequence is unseen
  std::multiset<SequenceId> released;

  int held(SequenceId id) const {
    const auto rows = [&](const std::map<SequenceId, int>& of) { return of.contains(id) ? of.at(id) : 0; };
    return (rows(cached) + rows(reserved) + page - 1) / page;
  }
  int free() const {
    std::set<SequenceId> all;
    for (const auto& [id, rows] : cached) all.insert(id);
    for (const auto& [id, rows] : reserved) all.insert(id);
    int left = pages;
    for (const SequenceId id : all) left -= held(id);
    return left;
  }
  int unseen(const Sequence& s) override { return s.length() - cached[s.id]; }
  bool reserve(const Sequence& s, int rows, bool) override {
    const int before = std::exchange(reserved[s.id], rows);
    if (free() >= 0) return true;
    return reserved[s.id] = before, false;
  }
  void release(Sequence& s) override { released.insert(s.id), cached.erase(s.id), reserved.erase(s.id); }
};

struct Turns : ::testing::Test {
  Queues queues;
  Pages memory;
  SequenceId last = 0;

  std::unique_ptr<Active> sequence(int length, int cached, int max_new_tokens = 100) {
    auto a = std::make_unique<Active>();
    a->sequence.id = ++last, a->sequence.tokens.assign(std::size_t(length), 1), a->sequence.prompt_length = length;
    a->sequence.limits.max_new_tokens = max_new_tokens;
    if (cached > 0) memory.cached[last] = cached;
    return a;
  }
  void running(int length, int cached) { queues.running.push_back(sequence(length, cached)); }
  void waiting(int length, int max_new_tokens = 100) { queues.waiting.push_back(sequence(length, 0, max_new_tokens)); }

  static Ids ids(const auto& actives) {
    Ids all;
    for (const auto& a : actives) all.push_back(a->sequence.id);
    return all;
  }
  static std::map<SequenceId, int> rows(const Plan& plan) {
    std::map<SequenceId, int> all;
    for (const Scheduled& s : plan.scheduled) all[s.active->sequence.id] = s.rows();
    return all;
  }
};

// 3 decodes and is planned first, with 11 pages. 1 reads its prompt and needs some of them; the row that was planned
// for 3 goes to 2.
TEST_F(Turns, rows_and_pages_of_a_preempted_sequence_go_to_others) {
  const auto plan_with = [&](int pages) {
    queues = {}, memory = Pages(), memory.pages = pages, last = 0;
    running(4, 0), running(30, 0), running(11, 10);
    return Scheduler(3, {8}).next(queues, memory, {1, 0});
  };
  const Plan enough = plan_with(1000);
  EXPECT_EQ(rows(enough), (std::map<SequenceId, int>{{1, 4}, {2, 3}, {3, 1}}));
  const Plan plan = plan_with(11);
  EXPECT_EQ(rows(plan), (std::map<SequenceId, int>{{1, 4}, {2, 4}}));
  EXPECT_EQ(plan.preempted, 1);
  EXPECT_EQ(ids(queues.waiting), Ids{3});
  EXPECT_EQ(memory.held(3), 0);
}

// 1 is at its last token and wants no guesses. There are three pages, and the fewest guesses of 2 would take three
// rows.
TEST_F(Turns, a_sequence_gives_up_its_guesses_before_another_its_memory) {
  running(10, 9), running(10, 9), running(10, 9);
  queues.running[0]->sequence.limits.max_new_tokens = 1;
  memory.pages = 30;
  const Plan plan = Scheduler(3, {64}).next(queues, memory, {6, 5});
  EXPECT_EQ(plan.preempted, 0);
  EXPECT_EQ(rows(plan), (std::map<SequenceId, int>{{1, 1}, {2, 1}, {3, 1}}));
  EXPECT_TRUE(memory.released.empty());
}

TEST_F(Turns, as_many_guesses_stay_as_there_are_pages_for) {
  running(10, 9);
  for (const auto& [pages, nodes] : std::map<int, int>{{100, 20}, {29, 20}, {28, 10}, {19, 10}, {18, 6}, {14, 3}}) {
    memory.pages = pages, memory.reserved.clear();
    const Plan plan = Scheduler(1, {64}).next(queues, memory, {20, 5});
    EXPECT_EQ(plan.scheduled.at(0).room.nodes, nodes) << pages << " pages";
  }
}

TEST_F(Turns, the_preempted_are_first_in_line_the_oldest_before_the_others) {
  running(8, 0), running(10, 9), running(10, 9), running(10, 9);
  waiting(2), waiting(1);
  memory.pages = 12;
  for (const SequenceId id : {2, 3, 4}) memory.cached[id] = 3;
  for (std::size_t i = 1; i < 4; ++i) queues.running[i]->sequence.tokens.resize(4);
  const Plan plan = Scheduler(6, {64}).next(queues, memory, {1, 0});
  EXPECT_EQ(plan.preempted, 2);
  EXPECT_EQ(ids(queues.running), (Ids{1, 2}));
  EXPECT_EQ(ids(queues.waiting), (Ids{3, 4, 5, 6}));
  memory.pages = 100;
  Scheduler(3, {64}).next(queues, memory, {1, 0});
  EXPECT_EQ(ids(queues.running), (Ids{1, 2, 3}));
  EXPECT_EQ(ids(queues.waiting), (Ids{4, 5, 6}));
}

// A short prompt that would fit does not go before a long one that does not.
TEST_F(Turns, nobody_overtakes_the_first_in_line) {
  running(5, 4), waiting(20), waiting(1);
  memory.pages = 15;
  EXPECT_EQ(rows(Scheduler(4, {64}).next(queues, memory, {1, 0})), (std::map<SequenceId, int>{{1, 1}}));
  EXPECT_EQ(memory.released, (std::multiset<SequenceId>{2})) << "it keeps nothing while it waits";
  EXPECT_EQ(ids(queues.waiting), (Ids{2, 3}));
}

// A whole run of the scheduler over random requests, and what must hold in each of its steps.
struct Run : Turns {
  Below below{0};
  int batch = 1, step_rows = 1, judged = 1, prompts = 1, preempted = 0, steps = 0;
  Budget most;

  void set(unsigned seed) {
    below = Below(seed), queues = {}, memory = Pages(), last = 0;
    batch = 1 + below(5), step_rows = batch + below(24), judged = batch + below(24);
    most = below(3) ? Budget{2 + below(9), 1 + below(6)} : Budget{1, 0};
    memory.page = 1 + below(4);
    for (int i = 0; i < 10; ++i) waiting(1 + below(20), 1 + below(20));
    memory.pages = (41 + memory.page - 1) / memory.page + below(12);
    prompts = 1 + below(12);
  }
  void expect_queues() {
    const Ids run = ids(queues.running), wait = ids(queues.waiting);
    Ids all = run;
    all.insert(all.end(), wait.begin(), wait.end());
    ASSERT_TRUE(std::is_sorted(all.begin(), all.end())) << "first come, first served";
    ASSERT_LE(int(run.size()), batch);
    for (const SequenceId id : wait) ASSERT_EQ(memory.held(id), 0) << "sequence " << id << " waits with pages";
    ASSERT_GE(memory.free(), 0);
  }
  void expect_plan(const Plan& plan, const Ids& decoding, int needed) {
    int rows = 0, nodes = 0, chains = 0;
    std::set<SequenceId> planned;
    const Ids run = ids(queues.running);
    for (const Scheduled& s : plan.scheduled) {
      ASSERT_TRUE(planned.insert(s.active->sequence.id).second);
      ASSERT_EQ(std::count(run.begin(), run.end(), s.active->sequence.id), 1) << "it does not run";
      ASSERT_GT(s.rows(), 0);
      ASSERT_EQ(s.root, s.room.nodes > 0);
      rows += s.rows(), nodes += s.room.nodes, chains += s.chain;
    }
    ASSERT_LE(rows, step_rows);
    ASSERT_LE(nodes, judged);
    ASSERT_LE(chains, prompts);
    ASSERT_TRUE(planned.contains(run.at(0))) << "the oldest does not go on";
    for (const SequenceId id : decoding)
      ASSERT_TRUE(planned.contains(id) || std::count(run.begin(), run.end(), id) == 0) << id << " is delayed";
    if (most.nodes == 1 && plan.preempted > 0) {
      ASSERT_GT(needed, memory.pages) << "there was room for all";
    }
    if (int(run.size()) < batch && !queues.waiting.empty() && rows < step_rows && chains < prompts) {
      const SequenceId first = queues.waiting.front()->sequence.id;
      const int wants = std::min({queues.waiting.front()->sequence.length(), step_rows - rows, prompts - chains + 1});
      ASSERT_LT(memory.free() * memory.page, wants) << "sequence " << first << " waits beside free pages";
    }
  }
  void step() {
    Ids decoding;
    int needed = 0;
    const SequenceId oldest = queues.running.empty() ? 0 : queues.running[0]->sequence.id;
    for (const auto& a : queues.running) {
      const int unseen = memory.unseen(a->sequence),
                rows = memory.cached[a->sequence.id] + std::min({unseen, step_rows, prompts + 1});
      if (unseen == 1) decoding.push_back(a->sequence.id);
      needed += (rows + memory.page - 1) / memory.page;
    }
    memory.released.clear();
    const Plan plan = Scheduler(batch, {step_rows, judged, prompts}).next(queues, memory, most);
    preempted += plan.preempted, ++steps;
    ASSERT_EQ(memory.released.count(oldest), 0u) << "the oldest was preempted";
    expect_queues(), expect_plan(plan, decoding, needed);
    for (const Scheduled& s : plan.scheduled) go_on(s);
    memory.reserved.clear();
    std::erase_if(queues.running, [&](const auto& a) {
      if (a->sequence.remaining() > 0) return false;
      return memory.release(a->sequence), true;
    });
  }
  // A round accepts some of the levels that were allowed.
  void go_on(const Scheduled& s) {
    Sequence& q = s.active->sequence;
    const int accepted = s.root ? below(std::min(s.room.depth, s.room.nodes - 1) + 1) : 0;
    memory.cached[q.id] += s.chain + (s.root ? 1 + accepted : 0);
    if (s.root) q.tokens.insert(q.tokens.end(), std::size_t(1 + accepted), 1);
    ASSERT_GE(q.remaining(), 0) << "it may accept more than its output";
  }
};

TEST_F(Run, nobody_starves_and_nothing_is_kept) {
  int preemptions = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    set(seed), steps = 0, preempted = 0;
    while (!queues.running.empty() || !queues.waiting.empty()) {
      step();
      if (HasFatalFailure() || steps > 600) FAIL() << "seed " << seed << ", step " << steps;
    }
    ASSERT_EQ(memory.free(), memory.pages);
    preemptions += preempted;
  }
  EXPECT_GT(preemptions, 300);
}

// In an engine: after every step the pool holds the pages of the running sequences and of no other.
TEST(Preemption, gives_back_the_pages_of_target_and_draft) {
  const auto models = conformance::table_models({.vocab = 5, .positions = 64});
  for (const char* drafter : {"none", "ngram", "draft_model"}) {
    const bool drafts = std::string(drafter) == "draft_model";
    Scene scene(models.target);
    scene.load = models.load;
    scene.configs.drafter = {{"name", drafter}};
    if (drafts) scene.configs.drafter["model"] = "table:other";
    const int guesses = std::string(drafter) == "none" ? 0 : 3;
    scene.configs.policy["length"] = guesses;
    scene.options = {.batch = 4, .step_rows = 64, .page_rows = 2, .pages = 24, .reuse_prefixes = false, .check = true};
    const auto engine = scene.engine();
    for (int i = 0; i < 8; ++i) {
      Request r;
      r.prompt = {1, 2, 3, i % 4}, r.limits.max_new_tokens = 20, r.sampling.temperature = 1;
      r.stream = std::uint64_t(i);
      engine->submit(std::move(r));
    }
    std::map<SequenceId, int> length;
    int preempted = 0;
    serve(*engine, [&](const StepReport& report) {
      int least = 0, most = 0;
      for (const SequenceReport& r : report.sequences) {
        int& tokens = length.try_emplace(r.id, 4).first->second;
        const int reserved = (tokens + guesses + 1) / 2;  // for the tokens that it had, and guesses
        tokens += int(r.emitted.size());
        if (r.finish != Finish::running) continue;
        least += (tokens - 1 + 1) / 2;  // the last token is not fed
        most += drafts ? 2 * reserved : reserved;
      }
      EXPECT_GE(report.pages_in_use, least) << drafter;
      EXPECT_LE(report.pages_in_use, most) << drafter << ": pages of no running sequence";
      preempted += report.preempted;
    });
    EXPECT_GT(preempted, 0) << drafter;
  }
}

}  // namespace
}  // namespace foretoken::oracle
