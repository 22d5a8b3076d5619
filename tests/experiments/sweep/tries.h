// For what is measured in time, which other work on the machine may spoil, but not in every try.
#pragma once

namespace foretoken::test {

template <class Measure, class Holds> bool in_one_of(int tries, const Measure& measure, const Holds& holds) {
  for (int k = 0; k < tries; ++k)
    if (holds(measure())) return true;
  return false;
}

}  // namespace foretoken::test
