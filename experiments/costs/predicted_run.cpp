#include "experiments/costs/predicted_run.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/philox.h"

namespace foretoken {
namespace {

constexpr std::uint32_t kResamplesOfRuns = 200;
constexpr double kFewSeconds = 0.05;        // of a run, in steps smaller than the measured ones
constexpr double kNormalOfMedian = 1.4826;  // the standard deviation of a normal error over its median magnitude

struct Active {
  std::uint64_t number = 0;
  int length = 0, left = 0;
  int unread = 0;  // tokens of its prompt
  int prompt = 0;
  int rounds = 0, drafted = 0, accepted = 0;  // rounds so far; nodes of the last one
  long tested = 0, passed = 0;                // levels of all rounds
};

// Of a draft with `depth` levels of as many nodes each.
SequenceReport report_of(std::uint64_t id, int nodes, int depth, int accepted) {
  SequenceReport r{.id = id,
                   .judged = true,
                   .drafted = nodes,
                   .depth = depth,
                   .accepted = accepted,
                   .rejected = accepted < depth,
                   .emitted = std::vector<Token>(std::size_t(accepted) + 1)};
  for (int l = 0; l < r.tested(); ++l)
    r.levels.push_back({.children = std::max(1, nodes / depth), .accepted = l < accepted ? 0 : -1});
  return r;
}

// A standard normal draw (Box and Muller).
double normal_draw(std::uint32_t resample, std::uint32_t which) {
  const Draws draws{.seed = 2, .stream = resample, .root = which};
  return std::sqrt(-2 * std::log(draws.uniform({Role::draft, 0, 0}))) *
         std::cos(2 * std::numbers::pi * draws.uniform({Role::draft, 0, 1}));
}

class Simulated {
 public:
  Simulated(const CostModel& costs, LengthPolicy* policy, const RoundRates& rates, std::uint32_t resample)
      : costs_(costs), policy_(policy), rates_(rates), resample_(resample) {}

  PredictedSide serve(std::span<const PredictedRequest> requests, int slots) {
    std::size_t next = 0;
    while (next < requests.size() || !active_.empty()) {
      for (; next < requests.size() && std::ssize(active_) < slots; ++next)
        active_.push_back({.number = next + 1,
                           .length = requests[next].prompt_tokens,
                           .left = std::max(1, requests[next].new_tokens),
                           .unread = requests[next].prompt_tokens,
                           .prompt = requests[next].prompt_tokens});
      whole_ = std::ssize(active_) == std::min(slots, int(requests.size()));
      step();
      tell(int(requests.size() - next));
      std::erase_if(active_, [](const Active& a) { return a.left == 0; });
    }
    side_.beyond = larger_ || smaller_seconds_ > kFewSeconds * side_.seconds;
    return side_;
  }

 private:
  std::vector<Budget> budgets() const {
    if (!policy_) return std::vector<Budget>(active_.size(), Budget{1, 0});
    std::vector<PastOnly> past;
    for (const Active& a : active_)
      past.push_back({.id = a.number,
                      .length = a.length,
                      .batch = int(active_.size()),
                      .rounds = a.rounds,
                      .drafted = a.drafted,
                      .accepted = a.accepted,
                      .acceptance = a.tested > 0 ? double(a.passed) / double(a.tested) : -1,
                      .room = {kMaxNodes, std::min(kMaxPath, a.left - 1)}});
    return policy_->budgets(past);
  }

  void step() {
    const std::vector<Budget> given = budgets();
    StepShape shape{.batch = int(active_.size()), .rows = double(active_.size())};
    report_ = {};
    double found = 0;                // levels that are drafted
    double prompts = 0, before = 0;  // tokens of prompts, and the positions before all of them
    for (std::size_t i = 0; i < active_.size(); ++i) {
      Active& a = active_[i];
      shape.context += a.length;
      prompts += a.unread;
      before += 0.5 * a.unread * a.unread;
      a.unread = 0;
      const Budget b = given[i].or_root();
      const int depth = std::min(b.depth, a.left - 1);  // the last token of an output is never fed
      shape.depth = std::max(shape.depth, depth);
      shape.levels += depth;
      for (int l = 0; l < depth; ++l) {
        found += rates_.drafted_at(l);
        shape.rows += rates_.drafted_at(l) * double(b.nodes - 1) / b.depth;
      }
      note_length(b.depth, a);
      emit(a, depth, depth > 0 ? (b.nodes - 1) * depth / b.depth : 0);
    }
    const double draft = costs_.draft(shape) + (policy_ ? prompts * costs_.prompt().draft_seconds : 0);
    side_.draft_seconds += draft;
    const double seconds =
        costs_.other(shape) + prompts * costs_.prompt().seconds + before * costs_.prompt().position_seconds + draft;
    side_.seconds += seconds;
    report_.rows = int(std::lround(shape.rows + prompts));
    report_.phases = {.draft_forward = draft, .target_forward = seconds - draft, .total = seconds};
    larger_ |= costs_.larger(shape);
    shape.levels = found;  // a draft that is not found makes no tree narrower
    if (costs_.smaller(shape)) smaller_seconds_ += seconds;
    ++side_.steps;
  }

  // The levels that a drafter found: of one that finds nothing in some rounds at least what is accepted.
  int found_levels(const Draws& draws, int depth, int accepted) const {
    const double u = draws.uniform({Role::draft, 0, 0});
    int found = 0;
    while (found < depth && u < rates_.drafted_at(found)) ++found;
    return std::max(found, accepted);
  }

  void emit(Active& a, int depth, int nodes) {
    const Draws draws{.seed = 3, .stream = std::uint64_t(resample_) << 32 | a.number, .root = std::uint32_t(a.length)};
    int accepted = 0;
    while (accepted < depth && draws.uniform({Role::accept, std::uint32_t(accepted), 0}) < rates_.accept_at(accepted))
      ++accepted;
    const int emitted = accepted + 1, found = found_levels(draws, depth, accepted);  // depth leaves room for one more
    const int drafted = depth > 0 ? nodes * found / depth : 0;
    SequenceReport r = report_of(a.number, drafted, found, accepted);
    if (found == 0) r.no_draft = depth > 0 ? NoDraft::nothing : a.left == 1 ? NoDraft::end : NoDraft::policy;
    a.length += emitted;
    a.left -= emitted;
    if (a.left == 0) r.finish = Finish::length;
    side_.tokens += emitted;
    ++side_.rounds;
    ++a.rounds;
    a.drafted = drafted;
    a.accepted = accepted;
    a.tested += r.tested();
    a.passed += accepted;
    report_.sequences.push_back(std::move(r));
  }

  // What an engine tells a policy after a step.
  void tell(int waiting) {
    if (!policy_) return;
    for (const Active& a : active_) {
      if (a.left > 0) continue;
      Sequence& s = report_.finished.emplace_back();
      s.id = a.number;
      s.prompt_length = a.prompt;
      s.finish = Finish::length;
      s.tokens.resize(std::size_t(a.length));
    }
    report_.waiting = waiting;
    report_.running = int(active_.size() - report_.finished.size());
    policy_->observe(report_);
    for (const Sequence& s : report_.finished) policy_->forget(s);
  }

  void note_length(int depth, const Active& a) {
    if (!whole_ || depth >= a.left - 1) return;
    if (length_ < 0) length_ = depth;
    side_.varies |= depth != length_;
  }

  const CostModel& costs_;
  LengthPolicy* policy_;
  const RoundRates& rates_;
  std::uint32_t resample_;
  std::vector<Active> active_;
  StepReport report_;
  bool larger_ = false;
  double smaller_seconds_ = 0;  // of steps that are smaller than the measured ones
  bool whole_ = false;          // all slots are taken
  int length_ = -1;             // of the first draft with room
  PredictedSide side_;
};

// Whole batches at the middle of their outputs. Prompts that a drafter reads have to be earned, too.
double break_even_of(const CostModel& costs, std::span<const PredictedRequest> requests, int slots,
                     LengthPolicy& policy) {
  double prompt = 0, output = 0;
  for (const PredictedRequest& r : requests) {
    prompt += double(r.prompt_tokens) / double(requests.size());
    output += double(r.new_tokens) / double(requests.size());
  }
  const int batch = std::min(slots, int(requests.size()));
  const std::vector<PastOnly> past(
      std::size_t(batch),
      {.length = int(prompt + output / 2), .batch = batch, .room = {.nodes = kMaxNodes, .depth = kMaxPath}});
  const Budget b = policy.budgets(past).at(0).or_root();
  if (b.depth == 0) return kUnknown;
  StepShape plain{.batch = batch, .rows = double(batch), .context = batch * (prompt + output / 2)};
  StepShape drafting = plain;
  drafting.depth = b.depth;
  drafting.levels = double(batch) * b.depth;
  drafting.rows = double(batch) * b.nodes;
  const double spent = output * costs.seconds(plain) / batch - prompt * costs.prompt().draft_seconds;
  const double needed = output * costs.seconds(drafting) / batch / spent;  // tokens of a round
  if (!(spent > 0) || needed > b.depth + 1) return kUnknown;
  double low = 0, high = 1;
  for (int i = 0; i < 60; ++i) {
    const double alpha = (low + high) / 2;
    double tau = 1, reach = 1;
    for (int l = 0; l < b.depth; ++l) tau += reach *= alpha;
    (tau < needed ? low : high) = alpha;
  }
  return high;
}

Interval interval_over(double value, std::vector<double> resamples) {
  std::ranges::sort(resamples);
  return {value, quantile(resamples, kTail), quantile(resamples, 1 - kTail)};
}

}  // namespace

PredictedSide served(const CostModel& costs, std::span<const PredictedRequest> requests, int slots,
                     LengthPolicy* policy, const RoundRates& rates, std::uint32_t resample) {
  return Simulated(costs, policy, rates, resample).serve(requests, slots);
}

Prediction predicted(const CostModel& costs, std::span<const PredictedRequest> requests, int slots,
                     const FreshPolicy& policy, const KnownAcceptance* acceptance) {
  const auto serve = [&](const RoundRates& rates, std::uint32_t resample) {
    return served(costs, requests, slots, policy().get(), rates, resample);
  };
  const PredictedSide plain = served(costs, requests, slots, nullptr, {}, 0);
  Prediction p{.plain_seconds = plain.seconds / plain.steps, .plain_tokens_per_second = plain.tokens_per_second()};
  // What a step takes hardly depends on acceptance.
  const RoundRates rates = acceptance ? acceptance->rates(0) : RoundRates{{0.5}, {1}};
  const PredictedSide whole = serve(rates, 0);
  if (!whole.varies) p.break_even = break_even_of(costs, requests, slots, *policy());
  p.step_seconds = whole.seconds / whole.steps;
  p.draft_seconds = whole.draft_seconds / whole.steps;
  p.beyond = whole.beyond || plain.beyond;
  if (!acceptance) return p;
  const CostError error = costs.cross_validation();
  const bool known_error = !std::isnan(error.median);
  const double deviation = known_error ? kNormalOfMedian * error.median : 0;
  std::vector<double> tau, speedup, speed;
  PredictedSide sum;
  for (std::uint32_t k = 1; k <= kResamplesOfRuns; ++k) {
    const RoundRates drawn = acceptance->rates(k);
    const PredictedSide one = serve(drawn, k);
    const PredictedSide exact = serve(rates, k);
    sum.tokens += exact.tokens, sum.rounds += exact.rounds, sum.seconds += exact.seconds;
    const double own = std::exp(deviation * normal_draw(k, 0)), other = std::exp(deviation * normal_draw(k, 1));
    tau.push_back(one.tokens / one.rounds);
    speed.push_back(one.tokens_per_second() / own);
    speedup.push_back(speed.back() / (plain.tokens_per_second() / other));
  }
  // The draws of all resamples together: the value is the mean's.
  p.tau = interval_over(sum.tokens / sum.rounds, std::move(tau));
  p.tokens_per_second = interval_over(sum.tokens_per_second(), std::move(speed));
  p.speedup = interval_over(sum.tokens_per_second() / plain.tokens_per_second(), std::move(speedup));
  if (!known_error) {
    p.tokens_per_second = Interval::of(p.tokens_per_second.value);
    p.speedup = Interval::of(p.speedup.value);
  }
  return p;
}

}  // namespace foretoken
