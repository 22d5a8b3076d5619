#include "experiments/conformance/race_region.h"

#include <cmath>

namespace foretoken::conformance {

RaceRegion::RaceRegion(int vocab) {
  Piece whole{1, {}};
  for (int x = 0; x < vocab; ++x) {
    whole.corners.emplace_back(std::size_t(vocab), 0.0);
    whole.corners.back()[std::size_t(x)] = 1;
  }
  pieces_.push_back(std::move(whole));
}

double RaceRegion::volume() const {
  double sum = 0;
  for (const Piece& p : pieces_) sum += p.volume;
  return sum;
}

RaceRegion RaceRegion::won_by(int winner, std::span<const double> law) const {
  RaceRegion region;
  if (!(law[std::size_t(winner)] > 0)) return region;
  region.pieces_ = pieces_;
  for (int x = 0; x < int(law.size()); ++x) {
    if (x == winner || !(law[std::size_t(x)] > 0)) continue;  // a token of probability 0 never wins
    std::vector<Piece> kept;
    for (const Piece& p : region.pieces_) cut(p, winner, x, law, kept);
    region.pieces_ = std::move(kept);
  }
  return region;
}

void RaceRegion::cut(const Piece& piece, int w, int x, std::span<const double> law, std::vector<Piece>& kept) {
  constexpr double kRounding = 1e-15;  // a corner that an earlier cut put on this plane lies on it
  const double lw = law[std::size_t(w)], lx = law[std::size_t(x)], scale = lw + lx;
  int inside = -1, outside = -1;
  double most = 0, least = 0;
  for (int i = 0; i < int(piece.corners.size()); ++i) {
    const auto& u = piece.corners[std::size_t(i)];
    const double f = (u[std::size_t(x)] * lw - u[std::size_t(w)] * lx) / scale;
    if (std::abs(f) <= kRounding) continue;
    if (f > most) most = f, inside = i;
    if (f < least) least = f, outside = i;
  }
  if (outside < 0) return kept.push_back(piece);
  if (inside < 0) return;
  const double share = most / (most - least);  // of the edge from the inner corner to the outer one
  const auto &in = piece.corners[std::size_t(inside)], &out = piece.corners[std::size_t(outside)];
  std::vector<double> middle(in.size());
  for (std::size_t k = 0; k < in.size(); ++k) middle[k] = in[k] + share * (out[k] - in[k]);
  Piece near = piece, far = piece;
  near.volume *= share, near.corners[std::size_t(outside)] = middle;
  far.volume *= 1 - share, far.corners[std::size_t(inside)] = std::move(middle);
  cut(near, w, x, law, kept);
  cut(far, w, x, law, kept);
}

}  // namespace foretoken::conformance
