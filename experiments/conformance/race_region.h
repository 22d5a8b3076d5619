// The exact region of the noise of one exponential race that is still possible. E_0, E_1, ... are independent Exp(1),
// so their shares u_x = E_x / sum E are uniform on the simplex, and "w wins under the distribution l" means u_w / l(w)
// <= u_x / l(x) for every other possible token x: half-spaces. The region is a list of simplices; a half-space cuts a
// simplex edge by edge, and each cut divides the volume as it divides the edge, so volumes need no other computation.
// This module must not know draws or verifiers.
#pragma once
#include <span>
#include <vector>

namespace foretoken::conformance {

class RaceRegion {
 public:
  explicit RaceRegion(int vocab);

  // The part in which `winner` wins under `law` (>= 0, [vocab]); empty where the winner is impossible.
  RaceRegion won_by(int winner, std::span<const double> law) const;
  double volume() const;  // its probability: 1 for the whole simplex

 private:
  struct Piece {
    double volume;
    std::vector<double> corners;  // [vocab, vocab], in one range: proofs make millions
  };
  // Appends to `kept` the part of `piece` where u_x law(w) - u_w law(x) >= 0.
  static void cut(Piece piece, int w, int x, std::span<const double> law, std::vector<Piece>& kept);

  std::vector<Piece> pieces_;
};

}  // namespace foretoken::conformance
