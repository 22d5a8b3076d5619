// mutations: a planted fault of a drafter on devices with separate memory that changes no output, only its cost.
#include "experiments/conformance/check.h"
#include "experiments/conformance/devices.h"
#include "tests/laws/mutant_scenario.h"

namespace foretoken::test {
namespace {

// A draft model whose cache drops every sequence after each round on a device with separate memory, so that its model
// is fed the whole sequence again in the next.
class Forgetting : public Drafter {
 public:
  Forgetting(std::unique_ptr<Drafter> inner, bool forgets) : inner_(std::move(inner)), forgets_(forgets) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override { return inner_->draft(requests); }
  void observe(std::span<const Outcome> outcomes) override {
    inner_->observe(outcomes);
    for (const Outcome& o : outcomes)
      if (forgets_) inner_->forget(*o.sequence);
  }
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }

 private:
  std::unique_ptr<Drafter> inner_;
  bool forgets_;
};

Registries with_forgetting() {
  Registries registries = all_registries();
  Entry<Drafter> entry = registries.drafters.entries().at("draft_model");
  entry.make = [make = entry.make](const json& o, Host& host) {
    return std::make_unique<Forgetting>(make(o, host), host.backend().device() != Device());
  };
  registries.drafters.replace("draft_model", entry);
  return registries;
}

CheckReport checked(const Registries& registries, const std::vector<std::string>& laws) {
  Environment environment;
  environment.devices.push_back({"cpu", [] { return make_cpu_backend(1); }});
  return check(candidates({registries, kDraftModel, nullptr, kSampling}), environment, {2, 600, laws});
}

TEST(Mutants, ACacheThatIsDroppedOnADeviceIsKilledByDevice) {
  const CheckReport sane = checked(all_registries(), {"device"});
  EXPECT_TRUE(sane.holds()) << sane.sentences.front();
  EXPECT_TRUE(checked(with_forgetting(), {"greedy", "batch"}).holds()) << "no output changes";
  EXPECT_FALSE(checked(with_forgetting(), {"device"}).holds());
  // With room for every cache, drafts are equally many too, so only the rows differ.
  ReferenceBackend reference;
  SimulatedDevice device;
  const Scenario scenario{.engine = {.batch = 4, .step_rows = 256, .page_rows = 2, .pages = 1024, .check = true}};
  const auto found = [&](const Registries& registries) {
    return same_on_devices({subject(registries, kDraftModel, kSampling), scenario, reference,
                            table_models({.vocab = 5, .order = 1, .seed = 95}), random_requests(8, 5, 10, 24, 12)},
                           device);
  };
  const Finding correct = found(all_registries()), planted = found(with_forgetting());
  EXPECT_TRUE(correct.holds) << correct.what;
  EXPECT_FALSE(planted.holds);
  EXPECT_NE(planted.why.find("models of the drafter are fed"), std::string::npos) << planted.why;
}

}  // namespace
}  // namespace foretoken::test
