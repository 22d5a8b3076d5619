// Random schedules: arrivals, lengths, pool sizes, chunks, preemption and cancellation, with the integrity of every
// cache checked after every step and every greedy text known beforehand.
#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "experiments/conformance/components.h"
#include "experiments/conformance/table_model.h"
#include "kernels/reference/reference_backend.h"
#include "tests/laws/subjects.h"

namespace foretoken::test {

using namespace conformance;

namespace {

constexpr int kVocab = 4;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : draws_{seed, 0, 0, 0} {}
  int below(int n) {
    return int(draws_.uniform({Role::draft, std::uint32_t(at_ & 4095), std::uint32_t(at_++ >> 12)}) * n);
  }
  int between(int least, int most) { return least + below(most - least + 1); }
  bool one_in(int n) { return below(n) == 0; }

 private:
  Draws draws_;
  std::uint32_t at_ = 0;
};

const std::vector<Subject>& all_subjects() {
  static const std::vector<Subject> all = [] {
    const Registries registries = with_scripted(all_registries());
    auto drafters = configurations(registries.drafters);
    for (int seed = 1; seed <= 3; ++seed) drafters.push_back(random_tree(seed, "mixed"));
    return subjects(registries, 4, drafters);
  }();
  return all;
}

struct Totals {
  long cancelled = 0, preempted = 0, finished = 0, accepted = 0, rejected = 0, prefix_rows = 0, starved = 0;
};

// One schedule of one engine, determined by its seed.
class Schedule {
 public:
  explicit Schedule(std::uint64_t seed)
      : dice_(seed),
        subject_(all_subjects()[std::size_t(dice_.below(int(all_subjects().size())))]),
        target_({.vocab = kVocab, .order = 2, .seed = 5, .impossible = 0.1}) {
    subject_.configs.policy["length"] = dice_.between(0, 7);
    greedy_ = !dice_.one_in(4), adjusted_ = dice_.one_in(3);
    for (int i = dice_.between(1, 12); i > 0; --i) plan_one();
    std::ranges::sort(plans_, {}, &Planned::arrival);
  }

  // How the schedule failed; empty if it did not.
  std::string run(Totals& totals) {
    Engine engine(backend_, std::make_shared<TableModel>(target_), subject_.registries, subject_.configs, options(),
                  models_.load);
    std::size_t arrived = 0;
    for (int step = 0; arrived < plans_.size() || !engine.idle(); ++step) {
      if (step > 5000) return "it does not come to an end";
      for (; arrived < plans_.size() && plans_[arrived].arrival <= step; ++arrived) submit(engine, plans_[arrived]);
      for (const Planned& p : plans_)
        if (p.id > 0 && p.cancelled_at == step) engine.cancel(p.id);
      const StepReport report = engine.step();
      count(report, totals);
      for (const Sequence& s : report.finished)
        if (const std::string wrong = judge(s, totals); !wrong.empty()) return wrong;
      if (report.pages_in_use != engine.pool().in_use()) return "the report counts other pages than the pool";
    }
    totals.prefix_rows += long(engine.target().cache().prefix_rows_reused());
    if (!plans_ended()) return "a request never ended";
    return engine.pool().in_use() == 0 ? ""
                                       : std::to_string(engine.pool().in_use()) + " pages are still held at the end";
  }

  std::string text() const {
    return subject_.text() + (greedy_ ? ", greedy, " : ", sampled, ") + std::to_string(plans_.size()) + " requests";
  }

 private:
  struct Planned {
    int arrival = 0, cancelled_at = -1, most = 1;
    Tokens prompt;
    SequenceId id = 0;
    bool ended = false;
  };

  void plan_one() {
    Planned p;
    p.arrival = dice_.one_in(2) ? 0 : dice_.below(30);
    if (dice_.one_in(5)) p.cancelled_at = p.arrival + dice_.below(12);
    p.most = dice_.between(1, dice_.one_in(2) ? 40 : 12);
    const bool shares = dice_.one_in(2);  // beginnings in common with others
    if (!plans_.empty() && dice_.one_in(3))
      p.prompt = plans_[std::size_t(dice_.below(int(plans_.size())))].prompt;  // another sample
    else
      for (int k = dice_.between(1, 14); k > 0; --k) p.prompt.push_back(shares ? (k / 2) % 2 : dice_.below(kVocab));
    plans_.push_back(std::move(p));
  }

  EngineOptions options() {
    EngineOptions o{.batch = dice_.between(1, 8),
                    .step_rows = 0,
                    .page_rows = dice_.between(1, 5),
                    .pages = 0,
                    .reuse_prefixes = !dice_.one_in(4),
                    .check = true};
    o.step_rows = o.batch + dice_.below(dice_.one_in(2) ? 8 : 60);
    for (const Planned& p : plans_)
      o.pages = std::max(o.pages, (int(p.prompt.size()) + p.most + o.page_rows - 1) / o.page_rows);
    o.pages += dice_.one_in(4) ? dice_.below(60) : dice_.below(3);
    return o;
  }

  void submit(Engine& engine, Planned& p) {
    Limits limits;
    limits.max_new_tokens = p.most, limits.stop_tokens = {kVocab - 1};
    const auto like = std::ranges::find_if(plans_, [&](const Planned& o) { return o.id > 0 && o.prompt == p.prompt; });
    p.id = engine.submit(
        {p.prompt, limits, sampling(), std::uint64_t(&p - plans_.data()), {}, like == plans_.end() ? 0 : like->id});
  }

  Sampling sampling() const {
    Sampling s{.temperature = greedy_ ? 0.0f : 1.0f};
    if (adjusted_)
      s.repetition_penalty = 1.3f, s.frequency_penalty = 0.3f, s.presence_penalty = 0.2f, s.logit_bias = {{0, 0.5f}};
    return s;
  }

  // The output of plain decoding, computed without an engine.
  Tokens expected(const Planned& p) const {
    Tokens all = p.prompt, text;
    while (int(text.size()) < p.most && (text.empty() || text.back() != kVocab - 1)) {
      const auto law = target_distribution(target_model_, all, int(p.prompt.size()), sampling());
      text.push_back(Token(std::ranges::max_element(law) - law.begin()));
      all.push_back(text.back());
    }
    return text;
  }

  std::string judge(const Sequence& s, Totals& totals) {
    Planned& p = *std::ranges::find(plans_, s.id, &Planned::id);
    if (std::exchange(p.ended, true)) return "request " + std::to_string(s.id) + " ended twice";
    const Tokens text(s.tokens.begin() + s.prompt_length, s.tokens.end());
    if (int(text.size()) > p.most)
      return "request " + std::to_string(s.id) + " has " + std::to_string(text.size()) + " tokens of at most " +
             std::to_string(p.most);
    if (s.finish == Finish::cancelled)
      ++totals.cancelled;
    else
      ++totals.finished;
    if (!greedy_) return "";
    const Tokens whole = expected(p);
    if (text.size() > whole.size() || (s.finish != Finish::cancelled && text.size() != whole.size()) ||
        !std::equal(text.begin(), text.end(), whole.begin()))
      return "request " + std::to_string(s.id) + " says [" + text_of(text) + "] instead of [" + text_of(whole) + "]";
    return "";
  }

  bool plans_ended() const {
    return std::ranges::all_of(plans_, [](const Planned& p) { return p.ended; });
  }

  static void count(const StepReport& report, Totals& totals) {
    totals.preempted += report.preempted;
    for (const SequenceReport& r : report.sequences) {
      totals.accepted += r.accepted, totals.rejected += r.tested() > r.accepted;
      totals.starved += r.judged && r.drafted == 0;
    }
  }

  Dice dice_;
  Subject subject_;
  TableModel::Options target_;
  TableModel target_model_{target_};
  ReferenceBackend backend_;
  Models models_ = table_models(target_);
  bool greedy_ = true, adjusted_ = false;
  std::vector<Planned> plans_;
};

TEST(Schedules, TenThousandRandomOnesKeepEveryCacheWhole) {
  Totals totals;
  for (std::uint64_t seed = 1; seed <= 10000; ++seed) {
    Schedule schedule(seed);
    std::string wrong;
    try {
      wrong = schedule.run(totals);
    } catch (const std::exception& e) {
      wrong = e.what();
    }
    ASSERT_EQ(wrong, "") << "schedule of seed " << seed << ": " << schedule.text();
  }
  EXPECT_GT(totals.preempted, 500);
  EXPECT_GT(totals.cancelled, 1000);
  EXPECT_GT(totals.finished, 30000);
  EXPECT_GT(totals.accepted, 10000);
  EXPECT_GT(totals.rejected, 10000);
  EXPECT_GT(totals.prefix_rows, 10000);
  EXPECT_GT(totals.starved, 1000);
}

}  // namespace
}  // namespace foretoken::test
