#include "experiments/conformance/other_options.h"

#include <algorithm>
#include <cmath>

#include "kernels/philox.h"

namespace foretoken::conformance {
namespace {

using nlohmann::json;

constexpr double kFar = 1e200;  // a range that ends beyond it is not declared

bool is_number(const Option& o) { return (o.type == "integer" || o.type == "number") && o.least > -kFar; }

// The numbers that an option may have, or those up to four times the given one where no end is declared.
class Range {
 public:
  Range(const Option& o, const json& given)
      : integer_(o.type == "integer"),
        now_(given.is_number() ? given.get<double>() : o.least),
        least_(o.least),
        most_(o.most < kFar ? o.most : 4 * std::max(1.0, std::abs(now_))) {}

  // The number at this share of the range. Equal shares are equal ratios of what is 1 more than the distance from the
  // least, so that a range up to 100 is not all above 25, and one up to 1 is nearly even.
  json at(double share) const { return value(least_ + std::pow(1 + most_ - least_, share) - 1); }
  // Both ends and the quarters, half and twice the given number, and the next; without that number itself.
  std::vector<json> others() const {
    std::vector<json> found{at(0), at(1), at(0.25), at(0.5), at(0.75), value((least_ + now_) / 2), value(2 * now_)};
    if (integer_) found.push_back(value(now_ + 1));
    std::vector<json> all;
    for (const json& x : found)
      if (x != value(now_) && std::ranges::find(all, x) == all.end()) all.push_back(x);
    return all;
  }

 private:
  // Of three digits, so that names of scenarios are short.
  json value(double x) const {
    const double digits = x == 0 ? 1 : std::pow(10, 2 - std::floor(std::log10(std::abs(x))));
    const double within = std::clamp(std::round(x * digits) / digits, least_, most_);
    return integer_ ? json(std::int64_t(within)) : json(within);
  }

  bool integer_;
  double now_, least_, most_;
};

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
    const Range range(o, now);
    for (const json& value : range.others()) add(value);
    for (std::size_t i = 0; i < together.size(); ++i)
      together[i][o.name] = range.at(Draws{std::uint64_t(i + 1)}.uniform({Role::draft, numbers, 0}));
    ++numbers;
  }
  if (numbers > 0) all.insert(all.end(), together.begin(), together.end());
  return all;
}

}  // namespace foretoken::conformance
