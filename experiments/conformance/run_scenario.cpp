#include <algorithm>
#include <map>

#include "experiments/conformance/scenario.h"

namespace foretoken::conformance {
namespace {

void count(const StepReport& report, RunOutcome& outcome) {
  outcome.preempted += report.preempted;
  for (const SequenceReport& r : report.sequences) {
    if (!r.judged) continue;
    ++outcome.rounds;
    outcome.drafted += r.drafted, outcome.accepted += r.accepted, outcome.tested += r.tested();
    outcome.rejections += r.tested() > r.accepted;
  }
}

Limits limits_of(const TestRequest& request, const Scenario& scenario) {
  Limits limits;
  limits.max_new_tokens = request.max_new_tokens, limits.stop_tokens = scenario.stop_tokens;
  if (scenario.limits) scenario.limits(limits);
  return limits;
}

void end_groups(const Scenario& scenario, std::span<const Tokens> outputs, std::span<const SequenceId> ids,
                Engine& engine) {
  const auto enough = [&](const Tokens& t) { return int(t.size()) >= scenario.enough; };
  const std::size_t group = scenario.group > 0 ? std::size_t(scenario.group) : outputs.size();
  for (std::size_t i = 0; group < outputs.size() && i < outputs.size(); i += group)
    if (std::ranges::all_of(outputs.subspan(i, group), enough))
      for (const SequenceId id : ids.subspan(i, group)) engine.cancel(id);
}

// The time of a scenario, for components that learn from measured times: the n-th reading of it is the same in every
// run, whatever else the machine does, so what they do can be compared. A reading is one to two milliseconds after the
// one before it.
class OwnTime {
 public:
  explicit OwnTime(Backend& backend) : backend_(backend) {
    backend.set_clock([seconds = 0.0, reading = std::uint32_t(0)]() mutable {
      return seconds += 1e-3 * (1 + Draws{.seed = 1}.uniform({Role::draft, reading++ % DrawName::kMostNode, 0}));
    });
  }
  ~OwnTime() { backend_.set_clock(nullptr); }
  OwnTime(const OwnTime&) = delete;

 private:
  Backend& backend_;
};

}  // namespace

RunOutcome run_scenario(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
                        std::span<const TestRequest> requests, const AfterStep& after) {
  const OwnTime time(backend);
  Engine engine(backend, models.target, subject.registries, subject.configs, scenario.engine, models.load,
                scenario.kept);
  RunOutcome outcome;
  outcome.outputs.resize(requests.size());
  std::map<SequenceId, std::size_t> place;
  std::vector<SequenceId> ids;
  std::map<SequenceId, const Sequence*> running;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const TestRequest& r = requests[i];
    const auto on_tokens = [&, i](const Sequence& s, std::span<const Token> tokens) {
      outcome.outputs[i].insert(outcome.outputs[i].end(), tokens.begin(), tokens.end());
      running[s.id] = &s;
    };
    const SequenceId like = r.like >= 0 ? ids[std::size_t(r.like)] : 0;
    ids.push_back(engine.submit(
        {r.prompt, limits_of(r, scenario), r.sampling.value_or(scenario.sampling), r.stream, on_tokens, like}));
    place[ids.back()] = i;
  }
  const auto unfinished = [&](const Tokens& t) { return int(t.size()) < scenario.enough; };
  while (!engine.idle() && std::ranges::any_of(outcome.outputs, unfinished)) {
    end_groups(scenario, outcome.outputs, ids, engine);
    const StepReport report = without_failures(engine.step());
    count(report, outcome);
    for (const Sequence& s : report.finished) {
      running.erase(s.id);
      outcome.outputs[place.at(s.id)].assign(s.tokens.begin() + s.prompt_length, s.tokens.end());
    }
    if (after) {
      std::vector<const Sequence*> alive;
      for (const auto& [id, s] : running) alive.push_back(s);
      after(engine, report, alive);
    }
  }
  outcome.prefix_rows = engine.target().cache().prefix_rows_reused();
  for (const auto& c : engine.host().caches()) outcome.draft_rows += c->books()->totals().rows;
  outcome.pages_left = engine.pool().in_use();
  return outcome;
}

}  // namespace foretoken::conformance
