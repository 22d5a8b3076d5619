#include "experiments/trace/cost_table.h"

#include <algorithm>
#include <cmath>

#include "experiments/report/statistics.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

json origin_of(const Trace& trace) {
  const json& run = trace.run();
  json origin;
  for (const char* part : {"target", "drafter"}) origin[part] = run.value(part, json());
  const json engine = run.value("engine", json::object());
  for (const char* key : {"batch", "device", "threads", "numerics"}) origin[key] = engine.value(key, json());
  const json machine = trace.header.value("machine", json::object());
  for (const char* key : {"cpu", "cores", "device", "description"})
    origin[key] = machine.is_object() ? machine.value(key, json()) : json();
  return origin;
}

}  // namespace

const std::map<int, double>& TimesBy::medians() const {
  if (medians_.empty())
    for (const auto& [number, seconds] : measured_) medians_[number] = median(seconds);
  return medians_;
}

double TimesBy::at(int number) const {
  const auto& known = medians();
  if (known.empty() || number < known.begin()->first || number > known.rbegin()->first)
    throw Error("steps of " + std::to_string(number) + " " + what_ + " were not measured" +
                (known.empty() ? ""
                               : " (" + std::to_string(known.begin()->first) + " to " +
                                     std::to_string(known.rbegin()->first) + " were)") +
                ", and times are not extrapolated; add a trace that has such steps with --costs");
  const auto above = known.lower_bound(number);
  if (above->first == number) return above->second;
  const auto below = std::prev(above);
  const double share = double(number - below->first) / double(above->first - below->first);
  return below->second + share * (above->second - below->second);
}

std::vector<double> TimesBy::errors() const {
  std::vector<double> all;
  for (const auto& [number, seconds] : measured_)
    for (const double s : seconds)
      if (const double table = at(number); table > 0) all.push_back(std::abs(s - table) / table);
  return all;
}

CostTable::CostTable(const Trace& trace) : origin_(origin_of(trace)), batch_(trace.batch()) { take(trace); }

void CostTable::add(const Trace& other, const std::string& file) {
  const json origin = origin_of(other);
  for (const auto& [key, value] : origin.items())
    if (value != origin_[key])
      throw Error("the times of " + file + " are those of another run: its '" + key + "' is " + value.dump() +
                  ", not " + origin_[key].dump() + "; take it out of --costs");
  take(other);
}

void CostTable::take(const Trace& trace) {
  for (const TracedStep& s : trace.steps) {
    if (s.judged != batch_ || s.prompt_rows > 0) continue;
    const double draft = s.phases.draft_forward + s.phases.draft_other;
    if (!(s.phases.total > std::max(0.0, draft))) continue;  // a clock that was set meanwhile
    ++steps_;
    if (s.baseline) {
      plain_.add(batch_, s.phases.total);
    } else {
      target_.add(s.rows, s.phases.total - draft);
      draft_.add(s.depth, draft);
    }
  }
}

double CostTable::round(int rows, int depth) const {
  return target_.at(rows * batch_) + (depth > 0 ? draft_.at(depth) : 0);
}

double CostTable::plain() const { return plain_.at(batch_); }

double CostTable::error() const {
  std::vector<double> all = target_.errors();
  const std::vector<double> plain = plain_.errors();
  all.insert(all.end(), plain.begin(), plain.end());
  return median(std::move(all));
}

}  // namespace foretoken
