#include "verifiers/deepest_path.h"

namespace foretoken {

EmittedLaw deepest_path_law(const Round& round,
                            const std::function<bool(const std::vector<double>& raw, Token)>& passes) {
  std::vector<std::vector<Token>> paths(std::size_t(round.nodes()));
  std::vector<bool> reached(paths.size(), false);
  reached[0] = true;
  std::size_t deepest = 0;
  for (std::size_t node = 0; node < paths.size(); ++node) {
    if (!reached[node]) continue;
    for (const int child : round.children(int(node))) {
      const std::size_t c = std::size_t(child);
      if (!passes(round.raw[node], round.tokens[c])) continue;
      reached[c] = true;
      paths[c] = paths[node];
      paths[c].push_back(round.tokens[c]);
      if (paths[c].size() > paths[deepest].size()) deepest = c;
    }
  }
  EmittedLaw law;
  for (std::size_t x = 0; x < round.p[deepest].size(); ++x) {
    std::vector<Token> emitted = paths[deepest];
    emitted.push_back(Token(x));
    if (round.p[deepest][x] > 0) law[emitted] += round.p[deepest][x];
  }
  return law;
}

}  // namespace foretoken
