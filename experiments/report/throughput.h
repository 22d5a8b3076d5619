// Tokens per second of an open loop, and how far they vary. This module must not know result lines.
#pragma once
#include <span>
#include <vector>

#include "experiments/report/statistics.h"

namespace foretoken {

// One side of one alternation.
struct ServedQueue {
  struct Request {
    double arrival, end;  // seconds after the first arrival
  };
  std::vector<Request> requests;   // in the order of their arrivals
  double tokens = 0, seconds = 0;  // of all requests; until the last one ended
};

// Tokens / seconds of all alternations, whose requests arrive at a rate (per second, a Poisson process) and share the
// places of a batch. It estimates what many alternations would give, with other arrivals and other speeds of the
// machine. Bounds are unknown with fewer than two alternations, or where one of them has no tokens.
//
// The seconds are about the greater of two times, until the last arrival and until the machine has done all work. Where
// these are near each other, most alternations take as long as the work, a few much longer: Student's interval of three
// to ten such times covers 87 to 92 %. But the law of arrivals is known, so their effect need not be estimated from the
// alternations. Each of these is served again with 2000 other arrivals: a request starts when it has arrived and a
// place is free, and keeps its place for as long as it did (Lindley 1952; Kiefer and Wolfowitz 1955 for several
// places).
//
// With arrivals alone, the bounds are the value times the outer quantiles of d = total seconds / expected total seconds
// of these resamples, since value = true value / d: a pivotal interval, and one of a known law, so with the quantiles
// of a normal distribution, not of Student's. The machine's standard error is that of the logarithms of tokens /
// expected seconds over alternations, with one degree of freedom less than alternations; arrivals are averaged out of
// them. The half-widths of both add up as interval_of() says.
//
// The time that a request keeps its place is taken as given, which is exact for one place. Where several requests share
// a step, it depends on arrivals too, whose chance then counts as the machine's as well: with 4 to 64 places and a rate
// near what the engine serves at most the interval covers up to 99 %
// (tests/nightly/experiments/report/throughput_coverage_test.cpp).
Interval throughput_interval(std::span<const ServedQueue> alternations, double rate, int places);

}  // namespace foretoken
