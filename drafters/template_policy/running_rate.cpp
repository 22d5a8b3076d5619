// A length policy: the length that promises the most tokens for its cost, at the acceptance rate of the sequence's last
// rounds. With rate a, a draft of g levels gives 1 + a + ... + a^g tokens and costs 1 + cost * g target forwards
// (Leviathan et al. 2023, arXiv 2211.17192). Old rounds fade, so that a sequence that changes its subject changes its
// length.
#include <algorithm>
#include <unordered_map>

#include <foretoken/plugin.h>

using namespace foretoken;

// A chain has one node for each level, and the root; a tree has more.
Budget budget_of(int levels, int width) { return {.nodes = std::min(1 + levels * width, kMaxNodes), .depth = levels}; }

class RunningRate : public LengthPolicy {
 public:
  RunningRate(double cost, double fading, int most, int width)
      : cost_(cost), fading_(fading), most_(most), width_(width) {}

  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> all;
    for (const PastOnly& p : past) all.push_back(budget_of(best_length(rates_[p.id].value()), width_));
    return all;
  }
  void observe(const StepReport& report) override {
    for (const SequenceReport& r : report.sequences) {
      if (r.tested() == 0) continue;  // nothing was drafted, so nothing was learned
      Rate& rate = rates_[r.id];
      rate.accepted = fading_ * rate.accepted + r.accepted;
      rate.tested = fading_ * rate.tested + r.tested();
    }
  }
  void forget(const Sequence& sequence) override { rates_.erase(sequence.id); }

 private:
  // Levels that were tested and accepted, those of old rounds weighing less. A new sequence has one and a half of two.
  struct Rate {
    double accepted = 0, tested = 0;
    double value() const { return (accepted + 1.5) / (tested + 2); }
  };

  int best_length(double rate) const {
    int best = 1;
    double reach = 1, tokens = 1, most_per_cost = 0;
    for (int g = 1; g <= most_; ++g) {
      reach *= rate, tokens += reach;
      const double per_cost = tokens / (1 + cost_ * g);
      if (per_cost > most_per_cost) most_per_cost = per_cost, best = g;
    }
    return best;
  }

  double cost_, fading_;
  int most_, width_;
  std::unordered_map<SequenceId, Rate> rates_;  // one for each sequence, never for a place in the batch
};

Entry<LengthPolicy> running_rate() {
  return {"the length with the most tokens for its cost at the running acceptance rate of each sequence",
          "arXiv 2211.17192",
          {{"cost", "number", 0.1, "of one drafted level, in target forwards, 0 to 10", false, 0, 10},
           {"fading", "number", 0.8, "what a round still weighs after the next one, 0 to 1", false, 0, 1},
           {"most", "integer", 12, "levels of any draft, 1 to 64", false, 1, kMaxPath},
           {"width", "integer", 1, "nodes for each level, 1 to 16", false, 1, 16}},
          [](const nlohmann::json& o, Host&) {
            return std::make_unique<RunningRate>(o.at("cost").get<double>(), o.at("fading").get<double>(),
                                                 o.at("most").get<int>(), o.at("width").get<int>());
          },
          [](const nlohmann::json& o, const ModelInfo&) {  // no budget exceeds it
            return budget_of(o.at("most").get<int>(), o.at("width").get<int>());
          }};
}

extern "C" const char* foretoken_abi() { return kAbi; }
extern "C" void foretoken_plugin(Registries& registries) { registries.policies.add("running_rate", running_rate()); }
