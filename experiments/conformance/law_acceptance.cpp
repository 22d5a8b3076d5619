#include <cmath>
#include <map>

#include "experiments/conformance/laws.h"
#include "experiments/conformance/target_distribution.h"

namespace foretoken::conformance {
namespace {

struct Drafted {
  Text context;
  int prompt = 0;  // so many of them
  DraftTree tree;
};

// The probability that a token drawn from q stands, given p, as the verifier states it.
double agreement(const std::vector<double>& p, const Distribution& q, const Soundness& how) {
  double sum = 0;
  for (Token x = 0; x < q.vocab; ++x) {
    const double px = p[std::size_t(x)], qx = q(x);
    if (!how.race) sum += how.acceptance == Acceptance::product ? px * qx : std::min(px, qx);
    if (!how.race || px == 0 || qx == 0) continue;
    double rivals = 0;
    for (Token y = 0; y < q.vocab; ++y) rivals += std::max(p[std::size_t(y)] / px, q(y) / qx);
    sum += 1 / rivals;
  }
  return sum;
}

struct Tally {
  double expected = 0, variance = 0;
  long tested = 0, accepted = 0;
};

// Every position that was tested: up to the first refusal.
void tally(const Drafted& d, const SequenceReport& r, const TableModel& target, const Sampling& sampling,
           const Soundness& how, std::map<int, Tally>& tallies) {
  Text context = d.context;
  for (int node = 1; node < d.tree.nodes && node <= r.accepted + 1; ++node) {
    const Token guess = *d.tree.tokens.row<Token>(node);
    const std::vector<double> p = target_distribution(target, context, d.prompt, sampling);
    const bool certain = Drawn(*d.tree.q.drawn.row<std::uint8_t>(node)) == Drawn::certain;
    const double e =
        certain ? p[std::size_t(guess)] : agreement(p, d.tree.q.distributions[std::size_t(node) - 1][0], how);
    Tally& t = tallies[node];
    t.expected += e, t.variance += e * (1 - e), t.accepted += node <= r.accepted, ++t.tested;
    context.push_back(guess);
  }
}

}  // namespace

Finding acceptance(const Subject& subject, const Scene& scene, Backend& backend, const TableModel::Options& options,
                   std::span<const Ask> asks) {
  Finding f{.what = subject.text()};
  const Cast cast = table_cast(options);
  const Soundness how = soundness_of(subject.registries, subject.chairs.verifier);
  std::map<SequenceId, Drafted> last;
  std::map<int, Tally> tallies;
  const auto record = [&](Host&, std::span<const DraftRequest> requests, std::span<const DraftTree> trees) {
    for (std::size_t i = 0; i < trees.size(); ++i) {
      last[requests[i].sequence->id] = {requests[i].sequence->tokens, requests[i].sequence->prompt_length, trees[i]};
      for (int n = 1; n < trees[i].nodes; ++n)
        if (*trees[i].parents.row<std::int32_t>(n) != n - 1) f.fail("the acceptance of a tree has no formula here");
    }
  };
  const auto judge = [&](Engine&, const StepReport& report, std::span<const Sequence* const>) {
    for (const SequenceReport& r : report.sequences)
      if (r.judged && f.holds)
        tally(last.at(r.id), r, static_cast<const TableModel&>(*cast.target), scene.sampling, how, tallies);
  };
  play(watched(subject, record), scene, backend, cast, asks, judge);
  for (const auto& [position, t] : tallies) {
    const double z = t.variance > 1e-9 ? (double(t.accepted) - t.expected) / std::sqrt(t.variance)
                     : std::abs(double(t.accepted) - t.expected) < 1e-6 ? 0
                                                                        : 1e9;
    f.what += "; position " + std::to_string(position) + ": " + std::to_string(t.accepted) + " of " +
              std::to_string(t.tested) + ", expected " + std::to_string(t.expected) + ", z " + std::to_string(z);
    f.measure = std::max(f.measure, std::abs(z));
    f.cases += t.tested, f.accepted += t.accepted, f.refused += t.tested - t.accepted;
  }
  if (f.measure > 5) f.fail("the measured acceptance is not the laws' own");
  return f;
}

}  // namespace foretoken::conformance
