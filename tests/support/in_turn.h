// Which scenarios of a long list a test runs: a few, other ones with each commit, so that the tests of one commit take
// minutes and those of many commits see everything. The nightly tests (tests/nightly) run all.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace foretoken::test {

// FORETOKEN_EVERY_SCENARIO is set in the environment.
bool every_scenario();

// A number that differs from commit to commit: FORETOKEN_TURN of the environment, else made of the commit.
std::size_t turn();

// All of them, or `most` neighbours, the last followed by the first.
template <class T> std::vector<T> in_turn(std::vector<T> all, std::size_t most) {
  if (every_scenario() || all.size() <= most) return all;
  std::ranges::rotate(all, all.begin() + std::ptrdiff_t(turn() * most % all.size()));
  all.resize(most);
  return all;
}

}  // namespace foretoken::test
