#include "experiments/conformance/enumerator.h"

#include <algorithm>
#include <cmath>

#include "kernels/error.h"

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

Enumerator::Name Enumerator::name_of(const Draws& draws, const Philox& counter) {
  return {draws.seed, std::to_array(counter.word)};
}

namespace {

std::string twice(const Draws& draws, DrawName name) {
  constexpr const char* kRoles[] = {"draft", "accept", "residual", "bonus", "noise"};
  return "; the draw {Role::" + std::string(kRoles[int(name.role)]) + ", " + std::to_string(name.node) + ", " +
         std::to_string(name.index) + "}" + (draws.scope > 0 ? " of an inner component" : "") +
         " was asked for twice in one round";
}

}  // namespace

int Enumerator::split(const Draws& draws, DrawName draw_name, const std::vector<double>& cuts) {
  Interval now;
  const Name name = name_of(draws, draws.counter(draw_name));
  if (remembers_) {
    const auto [it, fresh] = intervals_.try_emplace(name);
    if (!fresh && asked_twice_.empty()) asked_twice_ = twice(draws, draw_name);
    now = it->second;
  }
  std::vector<int> possible;
  std::vector<double> shares;
  for (int i = 0; i + 1 < int(cuts.size()); ++i) {
    const double share = std::min(cuts[std::size_t(i) + 1], now.high) - std::max(cuts[std::size_t(i)], now.low);
    if (share > 0) possible.push_back(i), shares.push_back(share);
  }
  const int taken = take(possible, shares);
  const Interval then{std::max(cuts[std::size_t(taken)], now.low), std::min(cuts[std::size_t(taken) + 1], now.high)};
  weight_ *= (then.high - then.low) / (now.high - now.low);
  if (remembers_) intervals_[name] = then;
  return taken;
}

int Enumerator::take(const std::vector<int>& possible, const std::vector<double>& shares) {
  if (possible.size() == 1) return possible.front();
  if (probe_ > 0 && !possible.empty()) {
    ways_ *= double(possible.size());
    const double u = Draws{probe_}.uniform({Role::draft, std::uint32_t(++probed_ & 1023), 0});
    return possible[std::size_t(u * double(possible.size()))];
  }
  double mark = weight_;
  for (std::size_t i = 0; i < possible.size(); ++i) mark += shares[i] * double(possible[i] + 2);
  if (at_ == script_.size()) script_.push_back({0, int(possible.size()), mark});
  const Choice& choice = script_[at_];
  if (possible.empty() || choice.ways != int(possible.size()) || choice.mark != mark) contradict();
  ++at_;
  return possible.at(std::size_t(choice.at));
}

void Enumerator::contradict() {
  contradicted_ = true;
  throw Error(
      "the decoder depends on something other than its named draws: the same sequence of outcomes met other draws when "
      "it ran again");
}

bool Enumerator::accept(double probability, const Draws& draws, DrawName name) {
  return split(draws, name, {0, std::clamp(probability, 0.0, 1.0), 1}) == 0;
}

Token Enumerator::draw(int vocab, Probability law, const Draws& draws, DrawName name) {
  std::vector<double> cuts{0};
  Token last = 0;
  for (Token x = 0; x < vocab; ++x) {
    const double p = law(x);
    if (p > 0) last = x;
    cuts.push_back(std::min(1.0, cuts.back() + p));
  }
  for (Token x = last; x < vocab; ++x)
    cuts[std::size_t(x) + 1] = 1;  // the last possible token takes the rounding error
  return split(draws, name, cuts);
}

Token Enumerator::race(int vocab, Probability law, const Draws& draws, std::uint32_t position) {
  constexpr double kNothing = 1e-14;  // a region of this size is rounding
  const Name name = name_of(draws, draws.noise_counter(position, 0));
  RaceRegion now;
  if (const auto known = regions_.find(name); known != regions_.end()) now = known->second;
  std::vector<double> p;
  for (Token x = 0; x < vocab; ++x) p.push_back(law(x));
  std::vector<int> possible;
  std::vector<double> shares;
  std::map<Token, RaceRegion> won;
  for (Token x = 0; x < vocab; ++x) {
    if (!(p[std::size_t(x)] > 0)) continue;
    const double share = won.emplace(x, now.won_by(x, p)).first->second.volume();
    if (share > kNothing) possible.push_back(x), shares.push_back(share);
  }
  if (won.empty()) throw Error("a race was asked for among tokens that all have probability 0");
  // A region just above rounding may split into parts below it: the whole of it goes to the token with the largest
  // part.
  const bool crumbs = possible.empty();
  if (crumbs)
    possible.push_back(std::ranges::max_element(won, {}, [](const auto& w) { return w.second.volume(); })->first);
  const int winner = take(possible, shares);
  if (!crumbs) weight_ *= won.at(winner).volume() / now.volume();
  if (remembers_) regions_.insert_or_assign(name, std::move(won.at(winner)));
  return winner;
}

void Enumerator::probe(std::uint64_t seed) {
  probe_ = seed, probed_ = 0, ways_ = 1;
  restart();
}

void Enumerator::restart() {
  at_ = 0, weight_ = 1;
  intervals_.clear();
  regions_.clear();
}

bool Enumerator::next() {
  while (!script_.empty() && ++script_.back().at == script_.back().ways) script_.pop_back();
  restart();
  paths_ += !script_.empty();
  return !script_.empty();
}

void Enumerator::follow(Script script) {
  script_ = std::move(script), given_ = script_.size();
  restart();
}

void Enumerator::branch(std::vector<Script>& left) {
  if (at_ < script_.size()) contradict();
  for (std::size_t i = given_; i < script_.size(); ++i)
    for (int at = 1; at < script_[i].ways; ++at) {
      left.emplace_back(script_.begin(), script_.begin() + std::ptrdiff_t(i) + 1);
      left.back().back().at = at;
    }
}

Enumerators::Enumerators(int at_once, int requests, bool remembers)
    : requests_(requests), all_(std::size_t(at_once), Enumerator(remembers)) {}

Enumerator& Enumerators::of(const Draws& draws) {
  if (all_.size() == 1) return all_.front();
  const std::uint64_t i = (draws.stream - 1) / std::uint64_t(requests_);
  if (i < all_.size()) return all_[std::size_t(i)];
  unknown_stream_ = true;
  throw Error("a draw has the stream " + std::to_string(draws.stream) + ", which no request has");
}

bool Enumerators::accept(double probability, const Draws& draws, DrawName name) {
  return of(draws).accept(probability, draws, name);
}

Token Enumerators::draw(int vocab, Probability law, const Draws& draws, DrawName name) {
  return of(draws).draw(vocab, law, draws, name);
}

Token Enumerators::race(int vocab, Probability law, const Draws& draws, std::uint32_t position) {
  return of(draws).race(vocab, law, draws, position);
}

// The oldest first: what differs from a sequence early has the most sequences after it, so least() grows fast. Where
// very many are left the newest, which leaves fewer.
int Enumerators::begin() {
  constexpr std::size_t kVeryMany = 1 << 15;
  running_ = int(std::min(left_.size(), all_.size()));
  for (int i = 0; i < running_; ++i) {
    const bool oldest = left_.size() < kVeryMany;
    all_[std::size_t(i)].follow(std::move(oldest ? left_.front() : left_.back()));
    oldest ? left_.pop_front() : left_.pop_back();
  }
  paths_ += running_;
  return running_;
}

void Enumerators::end() {
  std::vector<Enumerator::Script> more;
  for (int i = 0; i < running_; ++i) all_[std::size_t(i)].branch(more);
  for (Enumerator::Script& script : more) left_.push_back(std::move(script));
}

void Enumerators::probe(std::uint64_t seed) {
  for (Enumerator& e : all_) e.probe(seed == 0 ? 0 : seed++);
}

std::string Enumerators::asked_twice() const {
  const auto it = std::ranges::find_if(all_, [](const Enumerator& e) { return !e.asked_twice().empty(); });
  return it == all_.end() ? "" : it->asked_twice();
}

bool Enumerators::entangled() const {
  return all_.size() > 1 && (unknown_stream_ || std::ranges::any_of(all_, &Enumerator::contradicted));
}

}  // namespace foretoken::conformance
