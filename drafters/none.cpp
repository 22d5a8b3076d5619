// No speculation: the tree is its root. So plain decoding uses the same engine code as every drafter.
#include "drafters/drafters.h"

namespace foretoken {
namespace {

class None : public Drafter {
 public:
  explicit None(Backend& backend) : backend_(backend) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override { return rooted(backend_, requests); }

 private:
  Backend& backend_;
};

}  // namespace

Entry<Drafter> none() {
  return {"plain decoding: proposes nothing",
          "",
          {},
          [](const nlohmann::json&, Host& host) { return std::make_unique<None>(host.backend()); },
          [](const nlohmann::json&, const ModelInfo&) { return Needs{.below_drafts = true}; }};
}

}  // namespace foretoken
