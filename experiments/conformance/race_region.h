// The exact region of the noise of one exponential race that is still possible. E_0, E_1, ... are independent Exp(1),
// so their shares u_x = E_x / sum E are uniform on the simplex, and "w wins under the distribution l" means u_w / l(w)
// <= u_x / l(x) for every other possible token x: half-spaces. The region is a list of simplices; a half-space cuts a
// simplex edge by edge, and each cut divides the volume as it divides the edge, so volumes need no other computation.
// Only tokens that some race allowed are coordinates: the shares of a part of the tokens are uniform on its simplex
// too, and a further token makes of every simplex the one with its corner added, which is the same part of the whole.
// So the cost does not depend on the size of the vocabulary. This module must not know draws or verifiers.
#pragma once
#include <span>
#include <vector>

namespace foretoken::conformance {

class RaceRegion {
 public:
  // The part in which `winner` wins under `law` (>= 0, [vocab]); empty where the winner is impossible. Laws of one
  // region are over one vocabulary.
  RaceRegion won_by(int winner, std::span<const double> law) const;
  double volume() const;  // its probability: 1 for the whole simplex

 private:
  struct Piece {
    double volume;
    std::vector<double> corners;  // [tokens_, tokens_], in one range: proofs make millions
  };
  // Two of tokens_, by their places there, and their probabilities.
  struct Rivals {
    std::size_t w, x;
    double lw, lx;
  };
  std::size_t place_of(int token);  // in tokens_, to which it is added if it is not there
  // Appends to `kept` the part of `piece` where u_x lw - u_w lx >= 0; `n`: its corners.
  static void cut(Piece piece, const Rivals& r, std::size_t n, std::vector<Piece>& kept);

  std::vector<int> tokens_;  // that some law allowed; the whole simplex while there is none
  std::vector<Piece> pieces_{{1, {}}};
};

}  // namespace foretoken::conformance
