#include "experiments/trace/orders.h"

#include <numeric>
#include <set>

#include "kernels/error.h"

namespace foretoken {
namespace {

using Context = std::pair<int, int>;  // request, generated tokens
constexpr double kEqual = 1e-9;       // of expectations that differ by rounding

struct Column {
  std::string verifier, file;
  std::map<Context, double> accepted;  // expected
};

// Without rounds in which nothing was drafted.
std::vector<Column> columns_of(const NamedTrace& named) {
  std::set<std::string> names;
  for (const auto& step : named.trace->steps)
    for (const TracedRound& r : step.rounds)
      for (const auto& [name, reach] : r.reach) names.insert(name);
  std::vector<Column> columns;
  for (const std::string& name : names) {
    Column& column = columns.emplace_back(Column{name, named.file, {}});
    for (const auto& step : named.trace->steps)
      for (const TracedRound& r : step.rounds)
        if (const auto found = r.reach.find(name); found != r.reach.end() && !found->second.empty()) {
          const std::vector<double>& whole = found->second.back();
          column.accepted[{r.request, r.at}] = std::accumulate(whole.begin(), whole.end(), 0.0);
        }
  }
  return columns;
}

void expect_same_outputs(const NamedTrace& a, const NamedTrace& b) {
  const auto of = [](const NamedTrace& t) {
    std::vector<std::vector<Token>> outputs;
    for (const auto& rounds : t.trace->by_request()) {
      outputs.emplace_back();
      for (const TracedRound* r : rounds)
        outputs.back().insert(outputs.back().end(), r->emitted.begin(), r->emitted.end());
    }
    return outputs;
  };
  if (!a.trace->dense() || !b.trace->dense() || of(a) != of(b))
    throw Error(b.file + " is a trace of other requests or outputs than " + a.file +
                "; record both densely, from one run document with other drafters or verifiers");
}

Interval over_prompts(const Trace& trace, const std::map<Context, double>& values, double least) {
  std::map<int, Term> by_prompt;
  for (const auto& [context, value] : values)
    by_prompt[trace.requests[std::size_t(context.first)].prompt] += {value, 1, 0, 0};
  std::vector<Term> terms;
  for (auto& [prompt, term] : by_prompt) {
    term.base_top = term.base_bottom = 1;
    terms.push_back(term);
  }
  return mean_interval(terms, least, kMaxPath);
}

Order order_of(const Trace& trace, const std::vector<Column>& columns, std::size_t first, std::size_t second) {
  Order order{.first = first, .second = second};
  std::map<Context, double> gains;
  for (const auto& [context, accepted] : columns[first].accepted) {
    const auto other = columns[second].accepted.find(context);
    if (other == columns[second].accepted.end()) continue;
    const double gain = accepted - other->second;
    gains[context] = gain;
    ++order.rounds, order.more += gain > kEqual, order.less += gain < -kEqual;
  }
  order.gain = over_prompts(trace, gains, -kMaxPath);
  return order;
}

}  // namespace

Orders orders_of(const std::vector<NamedTrace>& traces) {
  std::vector<Column> columns;
  for (const NamedTrace& named : traces) {
    if (&named != &traces.front()) expect_same_outputs(traces.front(), named);
    std::vector<Column> more = columns_of(named);
    if (more.empty())
      throw Error(named.file + " holds no verifier's acceptance; record it with names in /trace/verifiers");
    columns.insert(columns.end(), more.begin(), more.end());
  }
  const Trace& first = *traces.front().trace;
  Orders orders;
  for (const Column& c : columns) orders.accepting.push_back({c.verifier, c.file, over_prompts(first, c.accepted, 0)});
  for (std::size_t a = 0; a < columns.size(); ++a)
    for (std::size_t b = a + 1; b < columns.size(); ++b) orders.pairs.push_back(order_of(first, columns, a, b));
  return orders;
}

}  // namespace foretoken
