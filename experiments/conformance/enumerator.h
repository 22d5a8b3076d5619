// Follows every outcome of every draw, with its exact probability, through production code: a Chance in the place of
// Philox. One name is one draw. For every name the interval of the uniform that is still possible is kept; `accept(p)`
// splits it at p, `draw` at the law's CDF, weights are ratios of lengths, and a name that is met again goes on with its
// interval; of a race, likewise, the part of the noise that is still possible. Only so does the proof see one draw used
// twice. This module must not know trees, verifiers or engines.
//
//   Enumerator chance;
//   do { ... run everything from the start; its outcome has the probability chance.weight() ... } while
//   (chance.next());
#pragma once
#include <array>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/host_backend.h"
#include "kernels/lane.h"

namespace foretoken::conformance {

// The exact region of the noise of one exponential race that is still possible. E_0, E_1, ... are independent Exp(1),
// so their shares u_x = E_x / sum E are uniform on the simplex, and "w wins under the distribution l" means u_w / l(w)
// <= u_x / l(x) for every other possible token x: half-spaces. The region is a list of simplices; a half-space cuts a
// simplex edge by edge, and each cut divides the volume as it divides the edge, so volumes need no other computation.
// Only tokens that some race allowed are coordinates: the shares of a part of the tokens are uniform on its simplex
// too, and a further token makes of every simplex the one with its corner added, which is the same part of the whole.
// So the cost does not depend on the size of the vocabulary.
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

using Probability = const std::function<double(Token)>&;

// The random numbers of the generator.
class Generator : public Chance {
 public:
  bool accept(double probability, const Draws& draws, DrawName name) override {
    return draws.uniform(name) < probability;
  }
  Token draw(int vocab, Probability p, const Draws& draws, DrawName name) override {
    return invert_cdf(scalar_tiles(p), vocab, draws.uniform(name));
  }
  Token race(int vocab, Probability p, const Draws& draws, std::uint32_t position) override {
    return win_race(scalar_tiles(p), vocab, draws, position);
  }
};

class Enumerator : public Chance {
 public:
  // Without memory every draw is a fresh uniform, as in a proof that forks at every draw: reused draws go undetected.
  explicit Enumerator(bool remembers = true) : remembers_(remembers) {}

  bool accept(double probability, const Draws& draws, DrawName name) override;
  Token draw(int vocab, Probability p, const Draws& draws, DrawName name) override;
  // A race draws the whole noise of its position: the noise that is still possible is a region of the simplex.
  Token race(int vocab, Probability p, const Draws& draws, std::uint32_t position) override;

  // One outcome of a draw that falls in several ways.
  struct Choice {
    int at = 0, ways = 1;
    double mark = 0;  // of the ways' shares and the probability of all before; a draw that splits otherwise has another
  };
  using Script = std::vector<Choice>;

  double weight() const { return weight_; }
  // Proceeds to the next sequence of outcomes, depth first; false after the last.
  bool next();
  long paths() const { return paths_; }

  // Instead of next(), for a caller that keeps the scripts: begins the sequence of outcomes whose first ones are given
  // and whose others are the first of each draw; when it ended, all that differ from it in a later one of these draws
  // and not before are appended to `left`.
  void follow(Script script);
  void branch(std::vector<Script>& left);
  // Whether the same outcomes have led to other draws than before.
  bool contradicted() const { return contradicted_; }

  // Before anything was followed: takes one sequence of outcomes at random, each outcome of a draw alike. The number of
  // all sequences is the mean of what ways() then says (Knuth 1975).
  void probe(std::uint64_t seed);
  double ways() const { return ways_; }

  // "; the draw {Role::accept, 1, 0} was asked for twice in one round", of the first name that was met again; else
  // empty. Races of one position share their noise, and are not meant.
  const std::string& asked_twice() const { return asked_twice_; }

 private:
  struct Interval {
    double low = 0, high = 1;
  };
  // The seed and the counter: they identify a draw of the generator.
  using Name = std::pair<std::uint64_t, std::array<std::uint32_t, 4>>;

  // Cuts the name's interval at ascending `cuts` (the first 0, the last 1); returns the number of the part that this
  // script takes.
  int split(const Draws& draws, DrawName name, const std::vector<double>& cuts);
  // The one of `possible` that this script takes. `shares`: of each, in any unit.
  int take(const std::vector<int>& possible, const std::vector<double>& shares);
  void restart();
  [[noreturn]] void contradict();
  static Name name_of(const Draws& draws, const Philox& counter);

  bool remembers_;
  std::map<Name, Interval> intervals_;
  std::map<Name, RaceRegion> regions_;
  Script script_;
  std::size_t at_ = 0, given_ = 0;  // the next choice; those that follow() gave
  bool contradicted_ = false;
  double weight_ = 1, ways_ = 1;
  std::uint64_t probe_ = 0, probed_ = 0;  // the seed, 0: follows the script; random choices so far
  long paths_ = 1;
  std::string asked_twice_;
};

// A host that asks `chance` for its draws as long as this lives.
class Asking {
 public:
  Asking(HostBackend& host, Chance& chance) : host_(host) { host_.set_chance(&chance); }
  ~Asking() { host_.set_chance(nullptr); }
  Asking(const Asking&) = delete;

 private:
  HostBackend& host_;
};

// Several sequences of outcomes at once: those of requests that are decoded together, told apart by the streams of
// their draws. One engine then serves many of them, at a fraction of the time that an engine for each takes.
//
//   Enumerators chance(...);
//   while (const int n = chance.begin()) { ... run n times the requests; chance.end() ... }

class Enumerators : public Chance {
 public:
  // `at_once`: the most that are followed together; with one, any stream is that one's. `requests` in turn, whose
  // streams count from 1, share one sequence of outcomes.
  Enumerators(int at_once, int requests, bool remembers);

  bool accept(double probability, const Draws& draws, DrawName name) override;
  Token draw(int vocab, Probability p, const Draws& draws, DrawName name) override;
  Token race(int vocab, Probability p, const Draws& draws, std::uint32_t position) override;

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
