// memory of a length policy: what it keeps of other sequences, or by their place in the batch, changes no budget.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include <malloc.h>

#include "experiments/conformance/laws.h"

namespace foretoken::conformance {
namespace {

std::string text(const Budget& b) {
  return std::to_string(b.nodes) + " nodes and " + std::to_string(b.depth) + " levels";
}

// What a report says of one sequence: not what others took of the step's rows, pages and time.
StepReport about(const StepReport& report, SequenceId id) {
  StepReport one;
  for (const SequenceReport& r : report.sequences)
    if (r.id == id) one.sequences.push_back(r), one.rows += r.prompt_rows + (r.judged ? 1 + r.drafted : 0);
  std::ranges::copy_if(report.finished, std::back_inserter(one.finished),
                       [id](const Sequence& s) { return s.id == id; });
  one.running = one.finished.empty();
  return one;
}

// The policy of a run, and beside it one policy for each sequence, which hears of that sequence alone.
class Followed : public LengthPolicy {
 public:
  using Make = std::function<std::unique_ptr<LengthPolicy>()>;
  Followed(std::unique_ptr<LengthPolicy> inner, const Budget& most, Make make, Finding& f)
      : inner_(std::move(inner)), most_(most), make_(std::move(make)), f_(f) {}

  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> given = inner_->budgets(past);
    for (std::size_t i = 0; i < past.size() && given.size() == past.size(); ++i) {
      known_.insert(past[i].id);
      compare(given[i], *of(past[i].id), past[i],
              "sequence " + std::to_string(past[i].id) + " at length " + std::to_string(past[i].length));
    }
    return given;
  }
  void observe(const StepReport& report) override {
    inner_->observe(report);
    for (const SequenceReport& r : report.sequences) of(r.id)->observe(about(report, r.id));
  }
  void forget(const Sequence& sequence) override {
    inner_->forget(sequence);
    alone_.erase(sequence.id);
  }

  // Every sequence has ended: one that comes with a known id is unknown to the policy, for whatever reason the one
  // before it ended, in its first round and, since what is left may show only after some rounds, in those that follow.
  // Ends are odd in number, so each comes after a life that accepts and after one that rejects.
  void expect_forgotten() {
    for (const SequenceId id : known_)
      for (std::size_t k = 0; k <= 2 * std::size(kEnds); ++k) {
        live(id, k % 2 == 0,
             "sequence " + std::to_string(id) + " has ended and was forgotten, and a new one of this id");
        forget(id, kEnds[k % std::size(kEnds)]);
      }
  }

  // Of two sequences one has every draft accepted, the other none.
  void expect_apart() {
    for (const bool accepts : {true, false}) {
      const SequenceId first = *known_.begin(), second = first + kIdsApart;
      live(first, accepts, "sequence " + std::to_string(first));
      live(second, !accepts, "sequence " + std::to_string(second) + ", beside sequence " + std::to_string(first));
      forget(first, Finish::length), forget(second, Finish::length);
    }
  }

  // Many sequences at once, for many rounds, each of which accepts another part of its drafts.
  void expect_apart_in_company() {
    constexpr int kSequences = 24, kRounds = 72;
    std::vector<PastOnly> all(kSequences);
    for (int i = 0; i < kSequences; ++i) all[std::size_t(i)] = first_round(SequenceId(i + 1) * 7, kSequences);
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<Budget> given = inner_->budgets(all);
      if (given.size() != all.size()) return f_.fail("budgets of another number of sequences");
      StepReport step;
      for (std::size_t i = 0; i < all.size(); ++i) {
        PastOnly& past = all[i];
        const std::string who = "sequence " + std::to_string(past.id) + ", one of " + std::to_string(kSequences) +
                                ", in its round " + std::to_string(round + 1) + ",";
        compare(given[i], *of(past.id), past, who);
        if (given[i].nodes > most_.nodes || given[i].depth > most_.depth)
          f_.fail(who + " got a budget of " + text(given[i]) + ", above the largest that the policy states, of " +
                  text(most_));
        const int accepted[] = {kMaxPath, 0, round % 3, round % 2 * kMaxPath, kMaxPath / 8};
        count_round(past, given[i], accepted[i % std::size(accepted)]);
        step.sequences.push_back(report_of(past).sequences[0]);
      }
      step.running = kSequences;
      observe(step);
    }
    for (const PastOnly& past : all) forget(past.id, Finish::length);
  }

  void expect_nothing_left() {
    const auto live = [this](int i) {
      PastOnly past = first_round(SequenceId(i + 1) * 7, 1);
      const std::vector<Budget> given = inner_->budgets({&past, 1});
      if (given.size() == 1) count_round(past, given[0], i % 3);
      inner_->observe(report_of(past));
      forget(past.id, kEnds[std::size_t(i) % std::size(kEnds)]);
    };
    conformance::expect_nothing_left(live, "LengthPolicy::forget must drop all that is kept of the sequence", f_);
  }

 private:
  static PastOnly first_round(SequenceId id, int batch) {
    PastOnly past;
    past.id = id, past.length = 3, past.batch = batch, past.room = {kMaxNodes, kMaxPath};
    return past;
  }
  // Of a round in which the sequence's chain is accepted up to the level `accepted`.
  static void count_round(PastOnly& past, const Budget& given, int accepted) {
    past.drafted = std::min(given.chain(), kMaxPath), past.accepted = std::min(accepted, past.drafted);
    if (past.drafted > 0) past.acceptance = double(past.accepted) / double(past.drafted);
    past.length += past.accepted + 1, ++past.rounds;
  }
  // Some rounds of a sequence, whose drafts are all accepted, or all rejected.
  void live(SequenceId id, bool accepts, const std::string& who) {
    const auto alone = make_();
    PastOnly past;
    past.id = id, past.length = 3, past.batch = 1, past.room = most_;
    while (past.rounds < 4) {
      const std::vector<Budget> given = inner_->budgets({&past, 1});
      if (given.size() != 1) break;
      compare(given[0], *alone, past, who + ", in its round " + std::to_string(past.rounds + 1) + ",");
      count_round(past, given[0], accepts ? kMaxPath : 0);
      const StepReport report = report_of(past);
      inner_->observe(report);
      alone->observe(report);
    }
  }
  void forget(SequenceId id, Finish finish) {
    Sequence sequence;
    sequence.id = id, sequence.tokens = {0, 0, 0}, sequence.prompt_length = 3, sequence.finish = finish;
    inner_->forget(sequence);
  }
  // Of a round with a chain.
  static StepReport report_of(const PastOnly& past) {
    SequenceReport r;
    r.id = past.id, r.judged = true, r.drafted = r.depth = past.drafted;
    r.accepted = past.accepted, r.rejected = past.accepted < past.drafted;
    r.levels.assign(std::size_t(past.accepted), {.children = 1, .accepted = 0});
    if (r.rejected) r.levels.push_back({.children = 1, .accepted = -1});
    r.emitted.assign(std::size_t(past.accepted) + 1, 0);
    StepReport report;
    report.sequences.push_back(std::move(r)), report.rows = past.drafted + 1, report.running = 1;
    return report;
  }

  std::unique_ptr<LengthPolicy>& of(SequenceId id) {
    std::unique_ptr<LengthPolicy>& policy = alone_[id];
    if (!policy) policy = make_();
    return policy;
  }
  void compare(const Budget& given, LengthPolicy& fresh, const PastOnly& past, const std::string& who) {
    const std::vector<Budget> alone = fresh.budgets({&past, 1});
    ++f_.cases;
    if (alone.size() == 1 && !(alone[0] == given))
      f_.fail(who + " got a budget of " + text(given) + ", where a policy that saw this sequence alone gives " +
              text(alone[0]) +
              "; keep what a policy knows by PastOnly::id, and drop it in LengthPolicy::forget, or state "
              "PolicyTraits::learns");
  }

  std::unique_ptr<LengthPolicy> inner_;
  Budget most_;  // that the policy states
  Make make_;
  Finding& f_;
  std::map<SequenceId, std::unique_ptr<LengthPolicy>> alone_;
  std::set<SequenceId> known_;
};

Budget most_of(const Subject& subject, const ModelInfo& target) {
  return subject.registries.policies.traits(subject.configs.policy, target).most;
}

}  // namespace

Finding policy_in_company(const Run& run) {
  const Subject& subject = run.subject;
  Finding f{.what = subject.text()};
  BareHost bare(run.backend, run.models, subject.registries, run.models.target->info().kv.page_bytes(4), 64);
  const auto make = [&] { return subject.registries.policies.make(subject.configs.policy, bare.host); };
  Followed policy(make(), most_of(subject, bare.host.target()), make, f);
  policy.expect_apart_in_company();
  if (f.holds) policy.expect_nothing_left();
  return f;
}

Finding policy_memory(const Run& run) {
  const Subject& subject = run.subject;
  Finding f{.what = subject.text()};
  Followed* followed = nullptr;
  const Subject watching = around(subject, [&](std::unique_ptr<LengthPolicy> made, Host& host) {
    auto policy = std::make_unique<Followed>(
        std::move(made), most_of(subject, host.target()),
        [&] { return subject.registries.policies.make(subject.configs.policy, host); }, f);
    followed = policy.get();
    return policy;
  });
  const auto after = [&](Engine& engine, const StepReport&, std::span<const Sequence* const>) {
    if (!engine.idle()) return;
    followed->expect_forgotten();
    followed->expect_apart();
  };
  const RunOutcome outcome = run_scenario(run.with(watching), after);
  f.add(outcome);
  f.seen["preemptions"] = outcome.preempted;
  if (f.holds && outcome.preempted == 0) f.fail("no sequence was preempted, so nothing was shown");
  return f;
}

namespace {

std::size_t bytes_in_use() {
  const struct mallinfo2 m = mallinfo2();
  return m.uordblks + m.hblkhd;
}

}  // namespace

void expect_nothing_left(const std::function<void(int)>& live, const std::string& remedy, Finding& f) {
  constexpr int kParts = 3, kLives = 1000;
  constexpr std::size_t kMost = 4 * kLives;
  std::size_t before = 0;
  int grown = 0;  // parts that left more in use than noise; the first one may fill caches
  for (int part = 0; part < kParts; ++part) {
    for (int i = 0; i < kLives; ++i) live(part * kLives + i);
    const std::size_t now = bytes_in_use();
    grown += part > 0 && now > before + kMost;
    if (grown == kParts - 1)
      f.fail("of the last " + std::to_string(kLives) + " sequences, which were all forgotten, " +
             std::to_string(now - before) + " bytes are still in use, as of those before them; " + remedy);
    before = now;
  }
  f.cases += kParts * kLives;
}

}  // namespace foretoken::conformance
