// Relaxed top-k: a drafted token is accepted if it is among the target's k most probable tokens and at most `margin`
// less probable than the first; the deepest accepted path is emitted. The relaxed acceptance of serving engines
// (TensorRT-LLM's for DeepSeek-R1: top-n within a margin of the first). Lossy: a drafted token among those is emitted
// whatever the target would have drawn. k = 1 with certain guesses is greedy decoding's own test.
#include <algorithm>

#include "verifiers/deepest_path.h"
#include "verifiers/verifiers.h"

namespace foretoken {
namespace {

struct RelaxedTopK {
  int k;
  double margin;
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    return follow_deepest(lane, t, [rule = *this](Lane&, const Distribution& raw) {
      return [rule, raw](Lane& l, Token x) {
        if (x == raw.row.greedy) return true;
        if (raw(x) < add(raw(raw.row.greedy), -rule.margin)) return false;
        const double mine = raw(x);
        const double before = l.sum([raw, mine, x](Token y) {
          const double other = raw(y);
          return other > mine || (other == mine && y < x) ? 1.0 : 0.0;
        });
        return before < rule.k;
      };
    });
  }
};

EmittedLaw induced(const Round& round, int k, double margin) {
  return deepest_path_law(round, [=](const std::vector<double>& raw, Token token) {
    std::vector<Token> order(raw.size());
    for (std::size_t x = 0; x < raw.size(); ++x) order[x] = Token(x);
    std::ranges::stable_sort(order, [&](Token a, Token b) { return raw[std::size_t(a)] > raw[std::size_t(b)]; });
    const auto at = std::ranges::find(order, token);
    return at == order.begin() ||
           (at - order.begin() < k && raw[std::size_t(token)] >= raw[std::size_t(order[0])] - margin);
  });
}

}  // namespace

Entry<Verifier> relaxed_top_k() {
  return {
      "accept what is among the target's k best; lossy",
      "",
      {{"k", "integer", 10, "how many of the target's most probable tokens are accepted, 1 to 1000", false, 1, 1000},
       {"margin", "number", 0.6, "the most that the probability may be below the greatest, 0 to 1", false, 0, 1}},
      [](const nlohmann::json& o, Host&) {
        return std::make_unique<RuleVerifier<RelaxedTopK>>(
            RelaxedTopK{o.at("k").get<int>(), o.at("margin").get<double>()});
      },
      [](const nlohmann::json& o, const ModelInfo&) {
        return Soundness{
            .takes = {Drawn::certain, Drawn::chain, Drawn::independent, Drawn::without_replacement, Drawn::marginals},
            .promise =
                "lossy: the deepest drafted path of tokens among the target's k best within the margin, then "
                "a token of the target",
            .acceptance = Acceptance::other,
            .raw = true,
            .induced = [k = o.at("k").get<int>(), margin = o.at("margin").get<double>()](const Round& round) {
              return induced(round, k, margin);
            }};
      },
      {nlohmann::json::object(), {{"k", 2}, {"margin", 0.25}}}};
}

}  // namespace foretoken
