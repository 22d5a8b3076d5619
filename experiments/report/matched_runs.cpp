#include "experiments/report/matched_runs.h"

#include <algorithm>
#include <map>
#include <set>

#include "experiments/report/selection.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

using LeavesOfRun = std::map<std::string, json>;  // the leaves of a run by their pointers

bool within(const std::string& pointer, const std::string& parent) {
  return pointer == parent || pointer.starts_with(parent + "/");
}

std::vector<LeavesOfRun> fields_of(const std::vector<Summary>& side, const std::vector<std::string>& ignored) {
  std::vector<LeavesOfRun> found;
  for (const Summary& summary : side) {
    const json leaves = summary.run().flatten();
    found.emplace_back();
    for (const auto& [pointer, value] : leaves.items())
      if (std::ranges::none_of(ignored, [&p = pointer](const std::string& parent) { return within(p, parent); }))
        found.back()[pointer] = value;
  }
  return found;
}

bool all_differ(const std::vector<LeavesOfRun>& runs) {
  return std::set<LeavesOfRun>(runs.begin(), runs.end()).size() == runs.size();
}

// Fields that have no value in common on both sides: they keep all runs from matching.
std::string differing_everywhere(const std::vector<LeavesOfRun>& a, const std::vector<LeavesOfRun>& b) {
  std::map<std::string, std::pair<std::set<json>, std::set<json>>> values;
  for (const LeavesOfRun& run : a)
    for (const auto& [pointer, value] : run) values[pointer].first.insert(value);
  for (const LeavesOfRun& run : b)
    for (const auto& [pointer, value] : run) values[pointer].second.insert(value);
  std::string found;
  for (const auto& [pointer, sides] : values)
    if (std::ranges::none_of(sides.first, [&s = sides](const json& value) { return s.second.contains(value); }))
      found += (found.empty() ? "" : ",") + pointer;
  return found;
}

}  // namespace

MatchedRuns match_runs(const std::vector<Result>& lines_a, const std::vector<Result>& lines_b,
                       const CompareOptions& options) {
  MatchedRuns found{summarize(lines_a), summarize(lines_b), {}, {}, {}, {}, {}};
  std::vector<std::string> ignored = {"/measure"};
  std::vector<json> runs;
  for (const auto* side : {&found.a, &found.b})
    for (const Summary& summary : *side) runs.push_back(summary.run());
  for (const std::string& pointer : options.ignore) {
    expect_known(runs, pointer, "so it cannot be ignored");  // it would have no effect
    ignored.push_back(pointer);
  }
  for (const auto* side : {&found.a, &found.b})
    if (!all_differ(fields_of(*side, ignored)))
      throw Error("two runs of " + (side == &found.a ? options.name_a : options.name_b) +
                  " differ only in what is ignored; ignore less");
  std::vector<LeavesOfRun> fields_a = fields_of(found.a, ignored), fields_b = fields_of(found.b, ignored);
  for (const auto* side : {&fields_a, &fields_b})
    for (const LeavesOfRun& fields : *side) found.documents.push_back(json(fields).unflatten());
  std::set<std::size_t> taken;
  for (std::size_t i = 0; i < found.a.size(); ++i) {
    const auto same = std::ranges::find(fields_b, fields_a[i]);
    if (same == fields_b.end()) {
      found.only_a.push_back(&found.a[i]);
      continue;
    }
    taken.insert(same - fields_b.begin());
    found.pairs.push_back({&found.a[i], &found.b[same - fields_b.begin()]});
  }
  for (std::size_t i = 0; i < found.b.size(); ++i)
    if (!taken.contains(i)) found.only_b.push_back(&found.b[i]);
  if (found.pairs.empty() && !fields_a.empty() && !fields_b.empty())
    found.apart = differing_everywhere(fields_a, fields_b);
  return found;
}

}  // namespace foretoken
