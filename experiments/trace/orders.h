// Which of several verifiers accepts more of the same rounds: their acceptance as it was recorded (/trace/verifiers),
// of one trace, or of several with the same outputs and other drafts. This module must not know verifiers by name.
#pragma once
#include <string>
#include <vector>

#include "experiments/report/statistics.h"
#include "experiments/trace/trace.h"

namespace foretoken {

// One verifier on the trees of one trace.
struct Accepting {
  std::string verifier, file;
  Interval accepted = Interval::unknown();  // expected accepted tokens of a round; intervals over prompts
};

// Two of them on the same contexts.
struct Order {
  std::size_t first = 0, second = 0;    // indices in Orders::accepting
  long rounds = 0, more = 0, less = 0;  // in which the first is expected to accept more, or less
  Interval gain = Interval::unknown();  // mean difference, tokens of a round
};

struct Orders {
  std::vector<Accepting> accepting;
  std::vector<Order> pairs;
};

struct NamedTrace {
  std::string file;
  const Trace* trace = nullptr;
};
// Traces without recorded acceptance, or with other requests or outputs than the first, are an Error.
Orders orders_of(const std::vector<NamedTrace>& traces);

}  // namespace foretoken
