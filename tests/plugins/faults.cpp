// A plugin that does what the variable FAULT says. Built by plugins_test.py as a user would build it.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "framework/components/plugin.h"

namespace foretoken {

// The program has a function of this name; the plugin must call its own.
Entry<LengthPolicy> fixed() {
  class Two : public LengthPolicy {
    int longest() const override { return 2; }
    std::vector<int> budgets(std::span<const PastOnly> past) override { return std::vector<int>(past.size(), 2); }
  };
  return {"always two", "", {}, [](const nlohmann::json&, Host&) { return std::make_unique<Two>(); }};
}

// Believes whatever was drafted.
struct Credulous {
  template <class Lane> FORETOKEN_HD Verdict operator()(Lane& lane, const Trial& t) const {
    Verdict v;
    int node = 0;
    for (int child = t.child(0, 0); child >= 0; child = t.child(node, node)) v.follow(node = child, t.tokens[child]);
    v.finish(lane.draw(t.p(node), {Role::bonus, std::uint32_t(node), 0}));
    return v;
  }
};

Entry<Verifier> credulous(const std::string& promise) {
  return {"takes all", "", {}, [promise](const nlohmann::json&, Host&) {
            return std::make_unique<RuleVerifier<Credulous>>(
                Soundness{.takes = {Drawn::certain}, .promise = promise, .acceptance = Acceptance::product});
          }};
}

}  // namespace foretoken

namespace {

struct Mine : std::exception {
  const char* what() const noexcept override { return "no table was found"; }
};

}  // namespace

extern "C" const char* foretoken_abi() { return foretoken::kAbi; }
extern "C" void foretoken_plugin(foretoken::Registries& registries) {
  const char* const variable = std::getenv("FAULT");
  const std::string fault = variable ? variable : "";
  if (fault == "nothing") return;
  registries.policies.add("two", foretoken::fixed());
  if (fault == "throws") throw Mine();
  if (fault == "throws an integer") throw 3;
  if (fault == "credulous") {
    registries.verifiers.add("liar", foretoken::credulous("exact"));
    registries.verifiers.add("frank", foretoken::credulous("lossy: the drafter's law"));
  }
  if (fault == "taken") registries.drafters.add("ngram", {});
  if (fault == "no maker") registries.verifiers.add("hollow", {});
}
