#include "experiments/python/bench_drafter.h"

namespace foretoken {
namespace {

class Repeat : public Drafter {
 public:
  explicit Repeat(Backend& backend) : backend_(backend) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i)
      for (int n = 0; n < requests[i].budget.chain(); ++n) trees[i].guess(n, requests[i].sequence->last());
    return trees;
  }

 private:
  Backend& backend_;
};

}  // namespace

Entry<Drafter> bench_repeat() {
  return {.summary = "the last token again, to measure what calls cost",
          .source = "",
          .options = {},
          .make = [](const nlohmann::json&, Host& host) { return std::make_unique<Repeat>(host.backend()); },
          .traits = [](const nlohmann::json&, const ModelInfo&) { return Needs{.proposes = {Drawn::certain}}; }};
}

}  // namespace foretoken
