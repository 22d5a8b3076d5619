#include "framework/engine/judging.h"

#include <algorithm>
#include <new>
#include <vector>

#include "framework/components/first_chances.h"

namespace foretoken {
namespace {

// The inputs of trials and log-probabilities, of the judged sequences.
struct Judged {
  std::vector<DraftTree> copies;     // where a tree of the step is not judged
  std::span<const DraftTree> trees;  // else all of them, since a copy of one refers to as much memory as it has nodes
  std::vector<DistributionAfter> rows;
  std::vector<Draws> draws;
  std::vector<std::uint32_t> positions;
  std::vector<std::uint8_t> warped;
  bool logprobs = false;

  Judged(const Plan& plan, std::span<const DraftTree> all) : trees(all) {
    const bool some = std::ranges::any_of(plan.scheduled, [](const Scheduled& s) { return !s.root; });
    for (std::size_t i = 0; i < plan.scheduled.size(); ++i) {
      if (!plan.scheduled[i].root) continue;
      const Sequence& q = plan.scheduled[i].active->sequence;
      for (int n = 0; n < all[i].nodes; ++n) rows.push_back({&q, &all[i], n, q.sampling.warp()});
      draws.push_back({q.sampling.seed, q.stream, std::uint32_t(q.length()), 0});
      positions.push_back(std::uint32_t(q.length()));
      warped.push_back(q.sampling.warped_logprobs);
      logprobs |= q.sampling.logprobs;
      if (some) copies.push_back(all[i]);
    }
    if (some) trees = copies;
  }
};

}  // namespace

Readback Judging::judge(const Plan& plan, std::span<const DraftTree> all, const Output& out, const Judge& judge,
                        const Wanted& wanted) {
  if (!out.logits) return {};
  const Judged j(plan, all);
  const Distributions own = distributions_.raw(out.logits, j.rows), p = distributions_.of(out.logits, j.rows);
  const Distributions raw = wanted.raw || wanted.ranks > 0
                                ? backend_.distributions(p.logits, std::vector<Warp>(j.rows.size(), Warp{1}))
                                : Distributions();
  const Trials trials(backend_, j.trees, p, j.draws, j.positions, trials_staging_, raw);
  const Tensor verdicts = backend_.allocate({std::int64_t(trials.count()), std::int64_t(sizeof(Verdict))}, DType::u8);
  Failures failures = verify(trials, judge, verdicts);
  if (j.logprobs)
    log_probabilities(backend_, trials, verdicts, backend_.upload(Tensor::host_copy<std::uint8_t>(j.warped, DType::u8)),
                      own);
  Readback read = read_back({verdicts, trials.tokens(), ranked(raw, wanted.ranks), add_up(trials, wanted.sums),
                             chances(trials, wanted.chances)});
  read.failures = std::move(failures);
  return read;
}

void Judging::read_constrained(const Plan& plan, std::span<const DraftTree> trees) {
  std::vector<const Token*> drawn;
  std::vector<Token*> known;
  for (std::size_t i = 0; i < plan.scheduled.size(); ++i) {
    if (!plan.scheduled[i].root || !plan.scheduled[i].active->sequence.tally.constraint()) continue;
    for (int n = 0; n < trees[i].nodes; ++n)
      if (const Token* at = trees[i].drawn_at(n)) drawn.push_back(at), known.push_back(trees[i].known.row<Token>(n));
  }
  if (drawn.empty()) return;
  drawn_.fetch(drawn);
  backend_.synchronize();
  for (std::size_t i = 0; i < known.size(); ++i) *known[i] = drawn_[i];
}

// The sums of q where they are wanted: in every step, or for the first trees that were drawn. Else nothing.
Tensor Judging::add_up(const Trials& trials, bool always) {
  constexpr int kAddedUp = 8;  // trees of an engine, since a component that errs does so soon
  const int drawn =
      int(std::ranges::count_if(trials.trees(), [](const DraftTree& t) { return !t.q.distributions.empty(); }));
  if (drawn == 0 || (!always && added_up_ >= kAddedUp)) return {};
  added_up_ = std::min(added_up_ + drawn, kAddedUp);
  const Tensor sums = backend_.allocate(trials.tokens().shape(), DType::f32);
  proposal_sums(backend_, trials, sums);
  return sums;
}

Tensor Judging::chances(const Trials& trials, bool wanted) {
  const auto drawn = [](const DraftTree& t) { return !t.q.distributions.empty(); };
  if (!wanted || std::ranges::none_of(trials.trees(), drawn)) return {};
  const Tensor all = backend_.allocate({std::int64_t(trials.count())}, DType::f32);
  first_chances(backend_, trials, all);
  return all;
}

// The most probable tokens at every node.
Tensor Judging::ranked(const Distributions& raw, int ranks) {
  if (ranks == 0) return {};
  const Shape shape{raw.count(), ranks};
  const Tensor best = backend_.allocate(shape, DType::i32);
  backend_.rank(raw, ranks, best, backend_.allocate(shape, DType::f32));
  return best;
}

Readback Judging::read_back(const Readback& d) {
  std::int64_t bytes = 0;
  for (const Tensor* from : {&d.verdicts, &d.tokens, &d.ranks, &d.sums, &d.chances})
    if (*from) bytes += from->bytes() + Staging::kAlignment;
  readback_staging_.begin(bytes);
  const auto fetched = [&](const Tensor& from) {
    if (!from) return Tensor();
    const Tensor to = readback_staging_.array(from.shape(), from.dtype()).host;
    backend_.fetch(from, to);
    return to;
  };
  return {fetched(d.verdicts), fetched(d.tokens), fetched(d.ranks), fetched(d.sums), fetched(d.chances)};
}

Failures Judging::verify(const Trials& trials, const Judge& judge, const Tensor& verdicts) {
  try {
    judge.verifier.verify(backend_, trials, verdicts);
    return {};
  } catch (...) {
    return verify_alone(trials, judge, verdicts);
  }
}

// One trial after another. Those for which the verifier throws get an empty verdict.
Failures Judging::verify_alone(const Trials& trials, const Judge& judge, const Tensor& verdicts) {
  std::vector<std::int64_t> begin{0};
  for (const DraftTree& t : trials.trees()) begin.push_back(begin.back() + t.nodes);
  Staging staging(backend_);
  const auto alone = [&](int i) {
    const std::size_t at = std::size_t(i);
    backend_.synchronize();  // then the staging of the trial before is no longer read
    const Trials one(backend_, trials.trees().subspan(at, 1),
                     trials.p().slice(int(begin[at]), trials.trees()[at].nodes),
                     std::span(trials.named()).subspan(at, 1), std::span(trials.positions()).subspan(at, 1), staging,
                     trials.raw() ? trials.raw().slice(int(begin[at]), trials.trees()[at].nodes) : Distributions());
    judge.verifier.verify(backend_, one, verdicts.rows(i, 1));
  };
  Failures failures = failures_alone(trials.count(), judge.name, alone);
  backend_.synchronize();
  const Tensor empty = Tensor::host({1, std::int64_t(sizeof(Verdict))}, DType::u8);
  new (empty.raw()) Verdict();
  for (int i = 0; i < trials.count(); ++i)
    if (!failures[std::size_t(i)].empty()) backend_.copy(empty, verdicts.rows(i, 1));
  return failures;
}

}  // namespace foretoken
