// A drafter whose needs the test sets, and an engine that drafts with a component that the test makes.
#pragma once
#include "tests/framework/engine/engine_scenario.h"
#include "tests/support/states.h"

namespace foretoken::test {

using nlohmann::json;

// A drafter without guesses: the test sets its needs and observes its outcomes.
class Needing : public Drafter {
 public:
  using See = std::function<void(const Outcome&)>;
  Needing(Backend& backend, See see) : backend_(backend), see_(std::move(see)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i)
      if (trees[i].parents.dim(0) > 2) trees[i].guess(0, 1), trees[i].guess(0, 2);
    return trees;
  }
  void observe(std::span<const Outcome> outcomes) override {
    for (const Outcome& o : outcomes) see_(o);
  }

 private:
  Backend& backend_;
  See see_;
};

struct Offers : EngineScenario {
  using Make = std::function<std::unique_ptr<Drafter>(Host&)>;

  void draft_with(const Make& make, const Needs& needs = {.proposes = {Drawn::certain}}) {
    registries.drafters.replace(
        "mine", entry_that<Drafter>(states(needs), [make](const json&, Host& host) { return make(host); }));
    configs.drafter = {{"name", "mine"}};
  }
  Sequence finished(float temperature) {
    const auto e = engine();
    Request r = request({1, 2, 3}, 12, temperature);
    r.sampling.logit_bias = penalties.logit_bias, r.sampling.frequency_penalty = penalties.frequency_penalty;
    e->submit(r);
    while (!e->idle())
      for (Sequence& s : e->step().finished) return std::move(s);
    return {};
  }
  Tokens text(float temperature) { return finished(temperature).tokens; }
  std::string refusal(Needs needs) {
    draft_with([&](Host& h) { return std::make_unique<Needing>(h.backend(), [](const Outcome&) {}); }, needs);
    return sentence([&] { engine(); });
  }
  Sampling penalties;  // of every request: its biases and frequency penalty
};

}  // namespace foretoken::test
