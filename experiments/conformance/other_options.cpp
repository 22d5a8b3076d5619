#include "experiments/conformance/other_options.h"

#include <algorithm>
#include <cmath>

#include "kernels/philox.h"

namespace foretoken::conformance {
namespace {

using nlohmann::json;

constexpr double kFar = 1e200;  // a range that ends beyond it is not declared

bool is_number(const Option& o) { return (o.type == "integer" || o.type == "number") && o.least > -kFar; }

json value_of(const Option& o, double value) {
  return o.type == "integer" ? json(std::int64_t(value)) : json(value);
}

struct Range {
  double least, most;
};
Range range_of(const Option& o, double now) {
  return {o.least, o.most < kFar ? o.most : 4 * std::max(1.0, std::abs(now))};
}

// Both ends and the quarters of the range; nearer to the given value, half and twice of it, and the next; where the
// range is wide, one between it and the end in ratio.
std::vector<json> others(const Option& o, const json& given) {
  const double now = given.is_number() ? given.get<double>() : o.least;
  const auto [least, most] = range_of(o, now);
  const auto at = [least = least, most = most](double share) { return least + share * (most - least); };
  std::vector<double> values{least,     most,     (least + now) / 2, 2 * now, at(0.25), at(0.5), at(0.75),
                             std::sqrt(std::max(0.0, now) * std::max(0.0, most))};
  if (o.type == "integer") values.push_back(now + 1);
  std::vector<json> all;
  for (const double value : values) {
    const json other = value_of(o, value);
    if (value >= least && value <= most && other != given && std::ranges::find(all, other) == all.end())
      all.push_back(other);
  }
  return all;
}

}  // namespace

std::vector<json> other_options(const std::vector<Option>& options, const json& given) {
  constexpr int kTogether = 6;
  std::vector<json> all, together(kTogether, given);
  std::uint32_t numbers = 0;
  for (const Option& o : options) {
    const json& now = given.at(o.name);
    const auto add = [&](const json& value) {
      all.push_back(given);
      all.back()[o.name] = value;
    };
    if (o.type == "boolean" && now.is_boolean()) add(!now.get<bool>());
    if (!is_number(o)) continue;
    for (const json& value : others(o, now)) add(value);
    const auto [least, most] = range_of(o, now.is_number() ? now.get<double>() : o.least);
    for (std::size_t i = 0; i < together.size(); ++i)
      together[i][o.name] =
          value_of(o, least + (most - least) * Draws{std::uint64_t(i + 1)}.uniform({Role::draft, numbers, 0}));
    ++numbers;
  }
  if (numbers > 0) all.insert(all.end(), together.begin(), together.end());
  return all;
}

}  // namespace foretoken::conformance
