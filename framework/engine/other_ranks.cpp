#include "framework/engine/other_ranks.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "framework/engine/engine.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

// What rank 0's function returns, or that it threw, as a number that all ranks agree on.
template <class F> double decided(const Rank& rank, const F& decide) {
  constexpr double kThrew = -2;
  double number[] = {kThrew};
  std::exception_ptr thrown;
  try {
    if (rank.number == 0) number[0] = decide();
  } catch (...) {
    thrown = std::current_exception();
  }
  rank.agree(number);
  if (thrown) std::rethrow_exception(thrown);
  if (number[0] == kThrew) throw Error("it threw on rank 0");
  return number[0];
}

// Of the caller's function on rank 0; the others have none.
StopRule agreed(StopRule rule, const Rank& rank) {
  return [rule = std::move(rule), rank](std::span<const Token> generated, int seen) -> std::optional<int> {
    const double keep = decided(rank, [&] {
      const std::optional<int> kept = rule(generated, seen);
      return kept ? std::max(0, *kept) : -1;
    });
    return keep < 0 ? std::nullopt : std::optional(int(keep));
  };
}

using OnTokens = std::function<void(const Sequence&, std::span<const Token>)>;

OnTokens agreed(OnTokens on_tokens, const Rank& rank) {
  return [on_tokens = std::move(on_tokens), rank](const Sequence& sequence, std::span<const Token> tokens) {
    (void)decided(rank, [&] {
      on_tokens(sequence, tokens);
      return 0;
    });
  };
}

// FNV-1a of numbers, in 52 bits.
class Digest {
 public:
  void add(std::uint64_t number) { hash_ = (hash_ ^ number) * 0x100000001b3ull; }
  double value() const { return double(hash_ >> 12); }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325ull;
};

// Of what a step drew.
double digest(const StepReport& report) {
  Digest all;
  for (const SequenceReport& s : report.sequences)
    for (const Token t : s.emitted) all.add(s.id << 32 ^ std::uint32_t(t));
  return all.value();
}

}  // namespace

RankThreads::RankThreads(int ranks)
    : group_(std::make_shared<RankGroup>(ranks)), workers_(static_cast<std::size_t>(ranks - 1)) {
  for (int r = 1; r < ranks; ++r) workers_[std::size_t(r - 1)].thread = std::thread([this, r] { work(r); });
}

RankThreads::~RankThreads() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (Worker& w : workers_) w.thread.join();
}

void RankThreads::each(const std::function<void(int rank)>& task) {
  const std::lock_guard lock(mutex_);
  for (int r = 1; r <= int(workers_.size()); ++r)
    workers_[std::size_t(r - 1)].tasks.emplace_back([task, r] { task(r); });
  changed_.notify_all();
}

void RankThreads::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(
      lock, [&] { return std::ranges::all_of(workers_, [](const Worker& w) { return w.tasks.empty() && !w.busy; }); });
}

void RankThreads::work(int rank) {
  Worker& own = workers_[std::size_t(rank - 1)];
  const std::string who = "rank " + std::to_string(rank) + " of " + std::to_string(group_->size()) + " ended: ";
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || !own.tasks.empty(); });
    if (own.tasks.empty()) return;
    std::function<void()> task = std::move(own.tasks.front());
    own.tasks.pop_front();
    own.busy = true;
    lock.unlock();
    try {
      task();
    } catch (const std::exception& e) {
      group_->fail(who + e.what());
    } catch (...) {
      group_->fail(who + "unknown");
    }
    task = {};
    lock.lock();
    own.busy = false;
    changed_.notify_all();
  }
}

OtherRanks::OtherRanks(std::shared_ptr<RankThreads> threads, Make make)
    : threads_(std::move(threads)), engines_(static_cast<std::size_t>(threads_->group()->size())) {
  threads_->wait();
  threads_->group()->restart();
  threads_->each([this, make = std::move(make)](int rank) { engines_[std::size_t(rank)] = make(rank); });
}

OtherRanks::~OtherRanks() {
  threads_->each([this](int rank) { engines_[std::size_t(rank)].reset(); });
  threads_->wait();
}

void OtherRanks::expect_made() {
  threads_->wait();
  threads_->group()->expect_whole();
}

void OtherRanks::submit(Request& request) {
  const std::shared_ptr<RankGroup>& group = threads_->group();
  StopRule stop = std::exchange(request.limits.stop, {});
  OnTokens on_tokens = std::exchange(request.on_tokens, {});
  const bool stops = bool(stop), hears = bool(on_tokens);
  threads_->each([this, group, request, stops, hears](int rank) {
    Engine* const engine = engines_[std::size_t(rank)].get();
    if (!engine) return;
    Request own = request;
    if (stops) own.limits.stop = agreed(StopRule(), {group, rank});
    if (hears) own.on_tokens = agreed(OnTokens(), {group, rank});
    engine->submit(std::move(own));
  });
  if (stops) request.limits.stop = agreed(std::move(stop), {group, 0});
  if (hears) request.on_tokens = agreed(std::move(on_tokens), {group, 0});
}

void OtherRanks::each(std::function<void(Engine&)> call) {
  threads_->each([this, call = std::move(call)](int rank) {
    if (Engine* const engine = engines_[std::size_t(rank)].get()) call(*engine);
  });
}

void OtherRanks::expect_unbroken() const {
  if (!broken_.empty()) throw Error(broken_);
}

void OtherRanks::fail() {
  try {
    throw;
  } catch (const std::exception& e) {
    broken_ = e.what();
  } catch (...) {
    broken_ = "unknown";
  }
  broken_ = "the engine of a divided model has failed: " + broken_;
  threads_->group()->fail(broken_);
  threads_->wait();
}

void expect_alike(const Plan& plan, std::span<const DraftTree> trees, const Rank& rank) {
  Digest rows;
  for (std::size_t i = 0; i < plan.scheduled.size(); ++i) {
    const Scheduled& s = plan.scheduled[i];
    rows.add(s.active->sequence.id), rows.add(std::uint64_t(s.chain));
    if (s.root) rows.add(std::uint64_t(trees[i].nodes) + 1);
  }
  double number[] = {rows.value()};
  rank.agree(number);
  if (number[0] != rows.value())
    throw Error(
        "it was to run other rows than rank 0; a drafter or policy that decides by clocks or random numbers of its "
        "own, "
        "or fails on one rank alone, cannot serve a divided target");
}

void agree_on_step(StepReport& report, const Rank& rank) {
  const double drawn = digest(report);
  Phases& p = report.phases;
  double* const times[] = {&p.schedule, &p.draft_forward, &p.draft_other, &p.target_forward,
                           &p.verify,   &p.deliver,       &p.total};
  int* const counts[] = {&report.waits, &report.recorded, &report.unrecorded};
  std::vector<double> numbers{drawn};
  for (const double* t : times) numbers.push_back(*t);
  for (const int* n : counts) numbers.push_back(*n);
  rank.agree(numbers);
  auto agreed = numbers.begin();
  if (*agreed++ != drawn)
    throw Error(
        "it drew other tokens than rank 0, so their devices do not compute alike; use devices of one kind, or set "
        "\"numerics\" of the engine to \"invariant\"");
  for (double* t : times) *t = *agreed++;
  for (int* n : counts) *n = int(*agreed++);
}

}  // namespace foretoken
