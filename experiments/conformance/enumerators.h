// Several sequences of outcomes at once: those of requests that are decoded together, told apart by the streams of
// their draws. One engine then serves many of them, at a fraction of the time that an engine for each takes.
//
//   Enumerators chance(...);
//   while (const int n = chance.begin()) { ... run n times the requests; chance.end() ... }
#pragma once
#include <deque>

#include "experiments/conformance/enumerator.h"

namespace foretoken::conformance {

class Enumerators : public Chance {
 public:
  // `at_once`: the most that are followed together; with one, any stream is that one's. `requests` in turn, whose
  // streams count from 1, share one sequence of outcomes.
  Enumerators(int at_once, int requests, bool remembers);

  bool accept(double probability, const Draws& draws, DrawName name) override;
  Token draw(int vocab, const std::function<double(Token)>& law, const Draws& draws, DrawName name) override;
  Token race(int vocab, const std::function<double(Token)>& law, const Draws& draws, std::uint32_t position) override;

  // Begins those that are next; returns how many, 0 after the last.
  int begin();
  void end();
  double weight(int i) const { return all_[std::size_t(i)].weight(); }
  long paths() const { return paths_; }  // begun
  // The least number of all sequences of outcomes, by what is known so far.
  long least() const { return paths_ + long(left_.size()); }

  // As Enumerator::probe, all with seeds from `seed` on.
  void probe(std::uint64_t seed);
  double ways(int i) const { return all_[std::size_t(i)].ways(); }

  std::string asked_twice() const;  // of the first that has one
  // Whether what was followed together contradicts itself, which says nothing of one sequence of outcomes alone: some
  // sequence's draws depend on the others.
  bool entangled() const;

 private:
  Enumerator& of(const Draws& draws);

  int requests_, running_ = 0;
  std::vector<Enumerator> all_;
  std::deque<Enumerator::Script> left_{{}};
  long paths_ = 0;
  bool unknown_stream_ = false;
};

}  // namespace foretoken::conformance
