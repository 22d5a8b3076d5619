#include "experiments/conformance/race_region.h"

#include <cmath>

namespace foretoken::conformance {

RaceRegion::RaceRegion(int vocab) {
  const std::size_t n = std::size_t(vocab);
  Piece whole{1, std::vector<double>(n * n, 0.0)};
  for (std::size_t x = 0; x < n; ++x) whole.corners[x * n + x] = 1;
  pieces_.push_back(std::move(whole));
}

double RaceRegion::volume() const {
  double sum = 0;
  for (const Piece& p : pieces_) sum += p.volume;
  return sum;
}

RaceRegion RaceRegion::won_by(int winner, std::span<const double> law) const {
  RaceRegion region(*this);
  if (!(law[std::size_t(winner)] > 0)) region.pieces_.clear();
  for (int x = 0; x < int(law.size()); ++x) {
    if (x == winner || !(law[std::size_t(x)] > 0)) continue;  // a token of probability 0 never wins
    std::vector<Piece> kept;
    for (Piece& p : region.pieces_) cut(std::move(p), winner, x, law, kept);
    region.pieces_ = std::move(kept);
  }
  return region;
}

void RaceRegion::cut(Piece piece, int w, int x, std::span<const double> law, std::vector<Piece>& kept) {
  constexpr double kRounding = 1e-15;  // a corner that an earlier cut put on this plane lies on it
  const double lw = law[std::size_t(w)], lx = law[std::size_t(x)], scale = lw + lx;
  const std::size_t n = law.size();
  const double *inside = nullptr, *outside = nullptr;
  double most = 0, least = 0;
  for (const double* u = piece.corners.data(); u < piece.corners.data() + n * n; u += n) {
    const double f = (u[x] * lw - u[w] * lx) / scale;
    if (std::abs(f) <= kRounding) continue;
    if (f > most) most = f, inside = u;
    if (f < least) least = f, outside = u;
  }
  if (!outside) return kept.push_back(std::move(piece));
  if (!inside) return;
  const double share = most / (most - least);  // of the edge from the inner corner to the outer one
  Piece other = piece;
  double *near = piece.corners.data() + (outside - piece.corners.data()),
         *far = other.corners.data() + (inside - piece.corners.data());
  for (std::size_t k = 0; k < n; ++k) near[k] = far[k] = inside[k] + share * (outside[k] - inside[k]);
  piece.volume *= share, other.volume *= 1 - share;
  cut(std::move(piece), w, x, law, kept);
  cut(std::move(other), w, x, law, kept);
}

}  // namespace foretoken::conformance
