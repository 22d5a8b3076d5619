// Acceptance by thresholds: the children of a node are tried in order with one uniform number u. A child is accepted if
// the target gives it at least `single`, or if u is below the sum of p over the children so far, divided by
// `accumulated`. If none is accepted the next token is drawn from p without the children. The target-only rule of
// serving engines (SGLang's tree speculative sampling). With single = accumulated = 1 it draws from the target; below
// that it is lossy: drafted tokens are emitted more often than the target would. `single` is compared with the
// probability at temperature 1, before any cut.
#include <algorithm>

#include "verifiers/verifiers.h"

namespace foretoken {
namespace {

struct Threshold {
  double single, accumulated;
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      auto r = lane.open(t.p(node), OneHot{-1});
      const DrawName coin{Role::accept, std::uint32_t(node), 0};  // one for all children of the node
      int chosen = -1;
      bool tried = false;
      double sum = 0;
      for (int c = t.child(node, node); c >= 0 && chosen < 0; c = t.child(node, c)) {
        const Token x = t.tokens[c];
        if (r.gone(x)) continue;
        sum = add(sum, t.p(node)(x)), tried = true;
        if (t.raw(node)(x) >= single || lane.accept(sum / accumulated, coin))
          chosen = c;
        else
          lane.reject_guess(r, x);
      }
      if (chosen < 0) {
        v.finish(lane.draw(r, {tried ? Role::residual : Role::bonus, std::uint32_t(node), 0}));
        return v;
      }
      v.follow(node = chosen, t.tokens[chosen]);
    }
  }
};

// Adds what is emitted from `node` on, after `path`, with this probability.
void emit(const Round& round, double single, double accumulated, int node, double weight, std::vector<Token> path,
          EmittedLaw& law) {
  const std::vector<double>& p = round.p[std::size_t(node)];
  std::vector<double> rest = p;
  double open = 1, sum = 0;  // the probability that no child was accepted so far
  for (const int c : round.children(node)) {
    const std::size_t x = std::size_t(round.tokens[std::size_t(c)]);
    if (rest[x] == 0 && p[x] > 0) continue;  // an earlier child has the same token
    sum += p[x];
    const bool surely = round.raw[std::size_t(node)][x] >= single;
    const double left = surely ? 0 : std::max(0.0, 1 - sum / accumulated);
    path.push_back(Token(x));
    if (open > left) emit(round, single, accumulated, c, weight * (open - left), path, law);
    path.pop_back();
    open = left, rest[x] = 0;
    if (open <= 0) return;
  }
  double mass = 0;
  for (const double r : rest) mass += r;
  for (std::size_t x = 0; x < rest.size(); ++x) {
    path.push_back(Token(x));
    if (rest[x] > 0) law[path] += weight * open * rest[x] / mass;
    path.pop_back();
  }
}

}  // namespace

Entry<Verifier> threshold() {
  return {
      "accept what the target gives a threshold, alone or in sum; lossy",
      "",
      {{"single", "number", 0.5, "probability at which a drafted token is always accepted, above 0 to 1", false, 1e-6,
        1},
       {"accumulated", "number", 1, "the sum of probabilities at which one of the children is, above 0 to 1", false,
        1e-6, 1}},
      [](const nlohmann::json& o, Host&) {
        return std::make_unique<RuleVerifier<Threshold>>(
            Threshold{o.at("single").get<double>(), o.at("accumulated").get<double>()});
      },
      [](const nlohmann::json& o, const ModelInfo&) {
        return Soundness{
            .takes = {Drawn::certain, Drawn::chain, Drawn::independent, Drawn::without_replacement, Drawn::marginals},
            .promise =
                "lossy: drafted tokens with p >= single always, the others with p / accumulated, then a token "
                "of the target's rest",
            .acceptance = Acceptance::other,
            .raw = true,
            .induced = [single = o.at("single").get<double>(),
                        accumulated = o.at("accumulated").get<double>()](const Round& round) {
              EmittedLaw law;
              emit(round, single, accumulated, 0, 1, {}, law);
              return law;
            }};
      },
      {nlohmann::json::object(), {{"single", 0.25}, {"accumulated", 0.75}}}};
}

}  // namespace foretoken
