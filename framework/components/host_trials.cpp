// HostTrials: copies a device's trials to the host, with their distributions and the tokens that the device drew.
#include <map>

#include "framework/components/verifier.h"

namespace foretoken {
namespace {

// Copies from the device, complete after its next synchronize().
class HostCopies {
 public:
  explicit HostCopies(Backend& device) : device_(device) {}

  Tensor of(const Tensor& t) {
    Tensor copy = Tensor::host(t.shape(), t.dtype());
    device_.fetch(t, copy);
    return copy;
  }
  Distributions of(const Distributions& distributions) {  // a distribution may serve many nodes
    if (!distributions) return {};
    const auto [it, fresh] = distributions_.try_emplace({distributions.logits.raw(), distributions.rows.raw()});
    if (fresh) it->second = {of(distributions.logits), of(distributions.rows)};
    return it->second;
  }

 private:
  Backend& device_;
  std::map<std::pair<const void*, const void*>, Distributions> distributions_;
};

}  // namespace

void HostTrials::verify(Backend& device, const Trials& trials, Tensor verdicts, const Verify& verify) {
  HostCopies copies(device);
  const Tensor tokens = copies.of(trials.tokens());
  std::vector<DraftTree> trees(trials.trees().begin(), trials.trees().end());
  std::int64_t row = 0;
  for (DraftTree& t : trees) {
    t.known = t.tokens = tokens.rows(row, t.nodes);
    for (Distributions& q : t.q.distributions) q = copies.of(q);
    row += t.nodes;
  }
  const Distributions p = copies.of(trials.p());
  const Distributions raw = trials.raw() ? Distributions{p.logits, copies.of(trials.raw().rows)} : Distributions();
  device.synchronize();
  if (!host_) host_ = make_cpu_backend();
  Staging staging(*host_);
  const Trials local(*host_, trees, p, trials.named(), trials.positions(), staging, raw);
  Tensor decided = Tensor::host(verdicts.shape(), verdicts.dtype());
  verify(*host_, local, decided);
  device.copy(decided, verdicts);
}

}  // namespace foretoken
