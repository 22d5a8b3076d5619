// Which runs have the same baseline, and the baselines of one round. This module must not know how one is measured.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "experiments/sweep/kept.h"

namespace foretoken {

// The fields that determine a baseline, as text: all except drafter and policy, the state that they begin from, and
// their trace.
std::string baseline_of(nlohmann::json run);

// Baselines of one round, shared by all runs of a sweep that differ only in drafter and policy. Valid where absolute
// times are stable (an exclusive GPU), not on a shared CPU, where only alternating measurements can be compared.
class Baselines {
 public:
  bool known(const nlohmann::json& run) const { return measured_.contains(baseline_of(run)); }
  // `measure` is called if this round has not measured it yet.
  const MeasuredSide& of(const nlohmann::json& run, const std::function<MeasuredSide()>& measure);
  // One that was measured before.
  void put(const nlohmann::json& run, MeasuredSide baseline) { measured_[baseline_of(run)] = std::move(baseline); }
  void clear() { measured_.clear(); }

 private:
  std::map<std::string, MeasuredSide> measured_;
};

}  // namespace foretoken
