// Speculative sampling on trees, with lenience: a child x drawn from q is accepted with probability
// min(1, r(x) / (lenience q(x))), where r is p at first and (r - q)+ over its sum after each rejection. A guess has a
// one-hot q. With lenience 1 this is recursive rejection, which is exact (Miao et al. 2023, arXiv 2305.09781). With
// less it accepts more, and below a node with one child no token is emitted with more than p(x) / lenience (Leviathan
// et al. 2023, arXiv 2211.17192, A.5).
#include <algorithm>
#include <numeric>

#include <foretoken/plugin.h>

using namespace foretoken;

struct Lenient {
  double lenience;
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    for (int node = 0;;) {
      auto r = lane.open(t.p(node), t.q(node));
      int chosen = -1;
      for (int c = t.child(node, node); c >= 0 && chosen < 0; c = t.child(node, c)) {
        const Token x = t.tokens[c];
        const double q = t.certain(c) ? 1 : t.q(node)(x);
        if (lane.accept(r(x) / (lenience * q), {Role::accept, std::uint32_t(c), 0}))
          chosen = c;
        else if (t.certain(c))
          lane.reject_guess(r, x);
        else
          lane.reject_draw(r);
      }
      if (chosen < 0) {
        v.finish(lane.draw(r, {Role::residual, std::uint32_t(node), 0}));
        return v;
      }
      v.follow(node = chosen, t.tokens[chosen]);
    }
  }
};

// What the rule emits from `node` on, after `path`, with probability `weight`: the same in plain vectors, for `check`.
void emit(const Round& round, double lenience, int node, double weight, std::vector<Token> path, EmittedLaw& law) {
  std::vector<double> r = round.p[node];
  for (const int c : round.children(node)) {
    const Token x = round.tokens[c];
    const bool guess = round.drawn[c] == Drawn::certain;
    const double accepted = std::min(1.0, r[x] / (lenience * (guess ? 1 : round.q[node][x])));
    path.push_back(x);
    if (accepted > 0) emit(round, lenience, c, weight * accepted, path, law);
    path.pop_back();
    if ((weight *= 1 - accepted) <= 0) return;
    for (Token y = 0; y < int(r.size()); ++y)
      r[y] = guess ? (y == x ? 0 : r[y]) : std::max(0.0, r[y] - round.q[node][y]);
    const double mass = std::accumulate(r.begin(), r.end(), 0.0);
    for (double& of : r) of /= mass;
  }
  path.push_back(0);  // the token that ends the round
  for (Token& last = path.back(); last < int(r.size()); ++last)
    if (r[last] > 0) law[path] += weight * r[last];
}

Entry<Verifier> lenient() {
  return {"recursive rejection that accepts with min(1, p / (lenience q)); exact with lenience 1",
          "arXiv 2211.17192, 2305.09781",
          {{"lenience", "number", 1, "factor of q before it is compared with p, above 0 to 1", false, 1e-6, 1}},
          [](const nlohmann::json& o, Host&) {
            return std::make_unique<RuleVerifier<Lenient>>(Lenient{o.at("lenience").get<double>()});
          },
          [](const nlohmann::json& o, const ModelInfo&) {
            Soundness s{.takes = {Drawn::certain, Drawn::chain, Drawn::independent, Drawn::marginals}};
            const double lenience = o.at("lenience").get<double>();
            if (lenience == 1) return s;  // exact, and accepts with the overlap of p and q: the defaults
            s.promise = "lossy: drafted tokens with min(1, p / (lenience q)), else a token of the residual";
            s.acceptance = Acceptance::other;  // no formula
            s.induced = [lenience](const Round& round) {
              EmittedLaw law;
              emit(round, lenience, 0, 1, {}, law);
              return law;
            };
            return s;
          }};
}

extern "C" const char* foretoken_abi() { return kAbi; }
extern "C" void foretoken_plugin(Registries& registries) { registries.verifiers.add("lenient", lenient()); }
