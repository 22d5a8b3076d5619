#include "experiments/conformance/race_region.h"

#include <algorithm>
#include <cmath>

namespace foretoken::conformance {

double RaceRegion::volume() const {
  double sum = 0;
  for (const Piece& p : pieces_) sum += p.volume;
  return sum;
}

std::size_t RaceRegion::place_of(int token) {
  const std::size_t n = tokens_.size(), at = std::size_t(std::ranges::find(tokens_, token) - tokens_.begin());
  if (at < n) return at;
  tokens_.push_back(token);
  for (Piece& p : pieces_) {
    std::vector<double> corners((n + 1) * (n + 1), 0.0);
    for (std::size_t k = 0; k < n; ++k) std::copy_n(p.corners.data() + k * n, n, corners.data() + k * (n + 1));
    corners.back() = 1;
    p.corners = std::move(corners);
  }
  return n;
}

RaceRegion RaceRegion::won_by(int winner, std::span<const double> law) const {
  RaceRegion region;
  if (!(law[std::size_t(winner)] > 0)) {
    region.pieces_.clear();
    return region;
  }
  region = *this;
  const std::size_t w = region.place_of(winner);
  for (int x = 0; x < int(law.size()); ++x) {
    if (x == winner || !(law[std::size_t(x)] > 0)) continue;  // a token of probability 0 never wins
    const Rivals rivals{w, region.place_of(x), law[std::size_t(winner)], law[std::size_t(x)]};
    std::vector<Piece> kept;
    for (Piece& p : region.pieces_) cut(std::move(p), rivals, region.tokens_.size(), kept);
    region.pieces_ = std::move(kept);
  }
  return region;
}

void RaceRegion::cut(Piece piece, const Rivals& r, std::size_t n, std::vector<Piece>& kept) {
  constexpr double kRounding = 1e-15;  // a corner that an earlier cut put on this plane lies on it
  const double *inside = nullptr, *outside = nullptr;
  double most = 0, least = 0;
  for (const double* u = piece.corners.data(); u < piece.corners.data() + n * n; u += n) {
    const double f = (u[r.x] * r.lw - u[r.w] * r.lx) / (r.lw + r.lx);
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
  cut(std::move(piece), r, n, kept);
  cut(std::move(other), r, n, kept);
}

}  // namespace foretoken::conformance
