// Trials of a device on the host: copies of the laws, and trees whose tokens the host has read.
#include <map>

#include "framework/components/verifier.h"

namespace foretoken {
namespace {

// Copies to the host, which are there after the device's next synchronize().
class HostCopies {
 public:
  explicit HostCopies(Backend& device) : device_(device) {}

  Tensor of(const Tensor& t) {
    Tensor copy = Tensor::host(t.shape(), t.dtype());
    device_.fetch(t, copy);
    return copy;
  }
  Laws of(const Laws& laws) {  // a law may serve many nodes
    if (!laws) return {};
    const auto [it, fresh] = laws_.try_emplace({laws.logits.raw(), laws.rows.raw()});
    if (fresh) it->second = {of(laws.logits), of(laws.rows)};
    return it->second;
  }

 private:
  Backend& device_;
  std::map<std::pair<const void*, const void*>, Laws> laws_;
};

}  // namespace

void verify_on_host(Backend& device, const Trials& trials, Tensor verdicts,
                    const std::function<void(Backend&, const Trials&, Tensor)>& verify) {
  HostCopies copies(device);
  const Tensor tokens = copies.of(trials.tokens());
  std::vector<DraftTree> trees(trials.trees().begin(), trials.trees().end());
  std::int64_t row = 0;
  for (DraftTree& t : trees) {
    t.known = t.tokens = tokens.rows(row, t.nodes);
    for (Laws& q : t.q.laws) q = copies.of(q);
    row += t.nodes;
  }
  const Laws p = copies.of(trials.p());
  device.synchronize();
  const auto host = make_cpu_backend();
  Staging staging(*host);
  const Trials local(*host, trees, p, trials.named(), trials.positions(), staging);
  Tensor decided = Tensor::host(verdicts.shape(), verdicts.dtype());
  verify(*host, local, decided);
  device.copy(decided, verdicts);
}

}  // namespace foretoken
