// The same budget for every sequence in every round (Leviathan et al. 2023, arXiv 2211.17192: gamma levels of a chain).
#include "drafters/drafters.h"

namespace foretoken {
namespace {

constexpr double kLeastConfidence = 1e-6;  // 0 would be another name of null

Budget budget_of(const nlohmann::json& o) {
  const nlohmann::json &nodes = o.at("nodes"), &confidence = o.at("confidence");
  const int length = o.at("length").get<int>();
  return {nodes.is_null() ? length + 1 : nodes.get<int>(), length, confidence.is_null() ? 0 : confidence.get<float>()};
}

class Fixed : public LengthPolicy {
 public:
  explicit Fixed(const Budget& budget) : budget_(budget) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    return std::vector<Budget>(past.size(), budget_);
  }

 private:
  Budget budget_;
};

}  // namespace

Entry<LengthPolicy> fixed() {
  return {
      "the same draft length in every round",
      "arXiv 2211.17192",
      {{"length", "integer", 4, "levels drafted below the root, 0 to 64", false, 0, kMaxPath},
       {"nodes", "integer", nullptr, "of a draft tree, the root included; null: a chain, length + 1", true, 1,
        kMaxNodes},
       {"confidence", "number", nullptr,
        "no children below a node after which the draft's greatest probability, at temperature 1 with nothing cut, "
        "is less; null: off; else a wait for the device in each round of a parallel drafter, on each level of another",
        true, kLeastConfidence, 1}},
      [](const nlohmann::json& o, Host&) { return std::make_unique<Fixed>(budget_of(o)); },
      [](const nlohmann::json& o, const ModelInfo&) { return budget_of(o); },
      {{{"length", 4}}, {{"length", 3}, {"nodes", 6}}, {{"length", 4}, {"confidence", 0.4}}}};
}

}  // namespace foretoken
