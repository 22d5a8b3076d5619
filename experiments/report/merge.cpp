#include "experiments/report/merge.h"

#include "experiments/report/summary.h"

namespace foretoken {

bool MergedResults::add(Result result) {
  const auto [place, fresh] = places_.try_emplace(result.key, lines_.size());
  if (fresh) {
    lines_.push_back(std::move(result));
    return true;
  }
  Result& known = lines_[place->second];
  if (to_json(result) == to_json(known)) return false;
  const auto worth = [](const Result& r) { return r.failed() ? 0 : r.unfinished ? 1 : 2; };
  // Dates sort as time does.
  if (worth(result) == worth(known) ? result.date < known.date : worth(result) < worth(known)) return false;
  known = std::move(result);
  return true;
}

const Result* MergedResults::of(const std::string& key) const {
  const auto found = places_.find(key);
  return found == places_.end() ? nullptr : &lines_[found->second];
}

bool MergedResults::measured(const std::string& key) const {
  const Result* const result = of(key);
  return result && !result->failed() && damage_of(*result).empty();
}

}  // namespace foretoken
