#include "experiments/conformance/enumerators.h"

#include <algorithm>

#include "kernels/error.h"

namespace foretoken::conformance {

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

Token Enumerators::draw(int vocab, const std::function<double(Token)>& law, const Draws& draws, DrawName name) {
  return of(draws).draw(vocab, law, draws, name);
}

Token Enumerators::race(int vocab, const std::function<double(Token)>& law, const Draws& draws,
                        std::uint32_t position) {
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
