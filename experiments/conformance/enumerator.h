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
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "experiments/conformance/race_region.h"
#include "kernels/lane.h"

namespace foretoken::conformance {

class Enumerator : public Chance {
 public:
  // Without memory every draw is a fresh uniform, as in a proof that forks at every draw: reused draws go undetected.
  explicit Enumerator(bool remembers = true) : remembers_(remembers) {}

  bool accept(double probability, const Draws& draws, DrawName name) override;
  Token draw(int vocab, const std::function<double(Token)>& law, const Draws& draws, DrawName name) override;
  // A race draws the whole noise of its position: the noise that is still possible is a region of the simplex.
  Token race(int vocab, const std::function<double(Token)>& law, const Draws& draws, std::uint32_t position) override;

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

  long names_met_again() const { return met_again_; }
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
  long paths_ = 1, met_again_ = 0;
  std::string asked_twice_;
};

// Renames every draw before it reaches `inner`, or Philox where `inner` is null: for planted bugs of naming. A race
// passes its position as the root, since its name holds the position.
class Renaming : public Chance {
 public:
  using Rename = std::function<void(Draws&, DrawName&)>;
  explicit Renaming(Rename rename, Chance* inner = nullptr) : rename_(std::move(rename)), inner_(inner) {}
  bool accept(double probability, const Draws& draws, DrawName name) override;
  Token draw(int vocab, const std::function<double(Token)>& law, const Draws& draws, DrawName name) override;
  Token race(int vocab, const std::function<double(Token)>& law, const Draws& draws, std::uint32_t position) override;

 private:
  Rename rename_;
  Chance* inner_;
};

}  // namespace foretoken::conformance
