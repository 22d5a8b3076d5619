#include "experiments/conformance/enumerator.h"

#include <algorithm>

#include "kernels/error.h"

namespace foretoken::conformance {

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
    met_again_ += !fresh;
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

Token Enumerator::draw(int vocab, const std::function<double(Token)>& law, const Draws& draws, DrawName name) {
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

Token Enumerator::race(int vocab, const std::function<double(Token)>& law, const Draws& draws, std::uint32_t position) {
  constexpr double kNothing = 1e-14;  // a region of this size is rounding
  const Name name = name_of(draws, draws.noise_counter(position, 0));
  RaceRegion now;
  if (const auto known = regions_.find(name); known != regions_.end()) now = known->second, ++met_again_;
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

bool Renaming::accept(double probability, const Draws& draws, DrawName name) {
  Draws d = draws;
  rename_(d, name);
  return inner_ ? inner_->accept(probability, d, name) : d.uniform(name) < probability;
}

Token Renaming::draw(int vocab, const std::function<double(Token)>& law, const Draws& draws, DrawName name) {
  Draws d = draws;
  rename_(d, name);
  return inner_ ? inner_->draw(vocab, law, d, name) : invert_cdf(scalar_tiles(law), vocab, d.uniform(name));
}

Token Renaming::race(int vocab, const std::function<double(Token)>& law, const Draws& draws, std::uint32_t position) {
  Draws d = draws;
  DrawName name{Role::noise, 0, 0};
  d.root = position;
  rename_(d, name);
  return inner_ ? inner_->race(vocab, law, d, d.root) : win_race(scalar_tiles(law), vocab, d, d.root);
}

}  // namespace foretoken::conformance
