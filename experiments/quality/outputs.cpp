#include "experiments/quality/outputs.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "experiments/quality/varying_mean.h"

namespace foretoken {

OutputFigures figures_of(const Outputs& model, const Outputs& reference) {
  assert(model.size() == reference.size());
  std::vector<Term> equal, prefix, share;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const auto differ = std::ranges::mismatch(model[i], reference[i]).in2;
    const double common = double(differ - reference[i].begin());
    equal.push_back({model[i] == reference[i] ? 1.0 : 0.0, 1});
    prefix.push_back({common, 1});
    share.push_back({common, double(reference[i].size())});
  }
  return {int(model.size()), share_interval(equal), varying_mean(prefix, 0, std::numeric_limits<double>::infinity()),
          varying_mean(share, 0, 1)};
}

}  // namespace foretoken
