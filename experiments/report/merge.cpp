#include "experiments/report/merge.h"

#include "experiments/report/summary.h"

namespace foretoken {

using nlohmann::json;

namespace {

// "2026-11-21T08:00:00Z", which sorts as time does; a line without one is the oldest.
std::string date_of(const json& line) {
  const auto found = line.find("date");
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

bool MergedResults::add(json line) {
  const auto [place, fresh] = places_.try_emplace(key_(line.at("run")), lines_.size());
  if (fresh) {
    lines_.push_back(std::move(line));
    return true;
  }
  json& known = lines_[place->second];
  const bool figures = !line.contains("error"), has = !known.contains("error");
  if (line == known || (figures == has ? date_of(line) < date_of(known) : has)) return false;
  known = std::move(line);
  return true;
}

const json* MergedResults::of(const std::string& key) const {
  const auto found = places_.find(key);
  return found == places_.end() ? nullptr : &lines_[found->second];
}

bool MergedResults::measured(const std::string& key) const {
  const json* const line = of(key);
  return line && !line->contains("error") && damage_of(*line).empty();
}

}  // namespace foretoken
