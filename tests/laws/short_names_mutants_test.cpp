// Planted bugs of verifiers that leave a part of a draw's name out: the upper half of the stream or of the seed, or
// what lies above the sixth bit of the length of the sequence. Few draws have names that differ in one of these alone,
// so each is killed by rounds that are drawn with Philox. The same verifier without the bug holds.
#include <gtest/gtest.h>

#include "experiments/conformance/law_table.h"
#include "tests/support/states.h"

namespace foretoken::test {

using namespace conformance;

namespace {

enum class Part { none, stream, upper_stream, upper_root, upper_seed };

// Another verifier, whose draws lack a part of their names, and whose races lack it of their positions.
class Shortening : public Verifier {
 public:
  Shortening(std::unique_ptr<Verifier> inner, Part part) : inner_(std::move(inner)), part_(part) {}
  void verify(Backend& backend, const Trials& trials, Tensor verdicts) override {
    std::vector<Draws> draws(trials.named().begin(), trials.named().end());
    std::vector<std::uint32_t> positions(trials.positions().begin(), trials.positions().end());
    for (Draws& d : draws) {
      if (part_ == Part::stream) d.stream = 0;
      if (part_ == Part::upper_stream) d.stream = std::uint32_t(d.stream);
      if (part_ == Part::upper_root) d.root %= 64;
      if (part_ == Part::upper_seed) d.seed = std::uint32_t(d.seed);
    }
    if (part_ == Part::upper_root)
      for (std::uint32_t& p : positions) p %= 64;
    Staging staging(backend);
    const Trials shortened(backend, trials.trees(), trials.p(), draws, positions, staging, trials.raw());
    inner_->verify(backend, shortened, verdicts);
  }

 private:
  std::unique_ptr<Verifier> inner_;
  Part part_;
};

// The rounds that are drawn with Philox and do not hold.
int broken(const std::string& verifier, Part part) {
  Registries registries = all_registries();
  const nlohmann::json config = registries.verifiers.complete({{"name", verifier}});
  registries.verifiers.add("shortening", {"",
                                          "",
                                          {{"inner", "verifier", config, "whose draws it shortens"}},
                                          [part](const nlohmann::json& o, Host& h) {
                                            return std::make_unique<Shortening>(h.verifier(o.at("inner")), part);
                                          },
                                          states_those_of(registries.verifiers, config)});
  const Subject subject{registries, {{{"name", "none"}}, {{"name", "fixed"}}, {{"name", "shortening"}}}};
  int found = 0, ran = 0;
  for (const LawCase& c : round_cases(candidate(subject, false), {})) {
    if (!c.scenario.ends_with(", scored") && !c.scenario.ends_with(", sampled")) continue;
    ++ran, found += !c.run().holds;
  }
  EXPECT_GT(ran, 0);
  return found;
}

TEST(ShortNames, WholeOnesHold) {
  for (const char* verifier : {"speculative_sampling", "coupled", "typical_acceptance"})
    EXPECT_EQ(broken(verifier, Part::none), 0) << verifier;
}

TEST(ShortNames, AreKilledByRounds) {
  for (const char* verifier : {"speculative_sampling", "coupled", "typical_acceptance"})
    for (const Part part : {Part::stream, Part::upper_stream, Part::upper_root, Part::upper_seed})
      EXPECT_GT(broken(verifier, part), 0) << verifier << ", part " << int(part);
}

}  // namespace
}  // namespace foretoken::test
