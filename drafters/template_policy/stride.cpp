// A length policy to copy: each sequence has a length of its own. It grows by two when a whole draft was accepted and
// shrinks by one when some of it was rejected. It looks at past rounds only, as every policy must. The heuristic
// schedule of assisted generation: Gante 2023 (huggingface.co/blog/assisted-generation).
#include <algorithm>
#include <unordered_map>

#include <foretoken/plugin.h>

namespace foretoken {
namespace {

class Stride : public LengthPolicy {
 public:
  Stride(int first, int most) : first_(first), most_(most) {}

  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> all;
    for (const PastOnly& p : past) {
      const int length = lengths_.emplace(p.id, first_).first->second;
      all.push_back({.nodes = length + 1, .depth = length});  // a chain; a tree has more nodes than levels
    }
    return all;
  }
  void observe(const StepReport& report) override {
    for (const SequenceReport& r : report.sequences) {
      if (r.drafted == 0) continue;
      int& length = lengths_.at(r.id);
      length = std::clamp(r.accepted == r.depth ? length + 2 : length - 1, 1, most_);
    }
  }
  void forget(const Sequence& sequence) override { lengths_.erase(sequence.id); }

 private:
  int first_, most_;
  std::unordered_map<SequenceId, int> lengths_;
};

}  // namespace

Entry<LengthPolicy> stride() {
  return {"two more levels after a draft that was accepted whole, one less after a rejection",
          "huggingface.co/blog/assisted-generation",
          {{"first", "integer", 5, "levels of a sequence's first draft", false, 1, kMaxPath},
           {"most", "integer", 16, "levels of any draft", false, 1, kMaxPath}},
          [](const nlohmann::json& o, Host&) {
            return std::make_unique<Stride>(std::min(o.at("first").get<int>(), o.at("most").get<int>()),
                                            o.at("most").get<int>());
          },
          [](const nlohmann::json& o, const ModelInfo&) {
            const int most = o.at("most").get<int>();
            return Budget{.nodes = most + 1, .depth = most};
          }};
}

}  // namespace foretoken

extern "C" const char* foretoken_abi() { return foretoken::kAbi; }
extern "C" void foretoken_plugin(foretoken::Registries& registries) {
  registries.policies.add("stride", foretoken::stride());
}
