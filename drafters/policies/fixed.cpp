// The same draft length for every sequence in every round (Leviathan et al. 2023, arXiv 2211.17192: gamma).
#include "drafters/drafters.h"

namespace foretoken {
namespace {

class Fixed : public LengthPolicy {
 public:
  explicit Fixed(int length) : length_(length) {}
  int longest() const override { return length_; }
  std::vector<int> budgets(std::span<const PastOnly> past) override { return std::vector<int>(past.size(), length_); }

 private:
  int length_;
};

}  // namespace

Entry<LengthPolicy> fixed() {
  return {"the same draft length in every round",
          "arXiv 2211.17192",
          {{"length", "integer", 4, "nodes drafted below the root, 0 to 64", false, 0, kMaxPath}},
          [](const nlohmann::json& o, Host&) { return std::make_unique<Fixed>(o.at("length").get<int>()); }};
}

}  // namespace foretoken
