// Whether the times of steps that do the same have two modes, as where a machine changed between two speeds while a run
// was measured. Intervals take alternations as draws from one distribution around one speed, and say nothing of two.
// This module must not know tables.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "experiments/report/result.h"

namespace foretoken {

struct TwoSpeeds {
  double ratio = 1;   // how many times as long the slower steps took, by the means of both groups' logarithms
  double slower = 0;  // their share
};

// Of logarithms of times, which are divided in two as measuring.md says (Otsu 1979): 99 of 100 samples of uniform draws
// have none. None of fewer than 24 times.
std::optional<TwoSpeeds> two_speeds(std::span<const double> logs);

// Of each side of a run that had two, from the blocks of all its alternations. What grows with the context is
// taken off: the growth from one block to the next, in which least absolute deviations leave out changes of the
// machine.
std::vector<SideSpeeds> two_speeds_of(const std::vector<Alternation>& repeats);

}  // namespace foretoken
