#include "experiments/conformance/scenario.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <numeric>

#include "experiments/conformance/components.h"
#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

using nlohmann::json;

// Of the kit's target.
template <class T> typename T::Traits traits_of(const Registry<T>& registry, const json& config) {
  return registry.traits(config, table_models({}).target->info());
}

class WatchedDrafter : public Around {
 public:
  WatchedDrafter(std::unique_ptr<Drafter> inner, Host& host, Watcher watcher)
      : Around(std::move(inner)), host_(host), watcher_(std::move(watcher)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    auto trees = inner_->draft(requests);
    watcher_(host_, requests, trees);
    return trees;
  }

 private:
  Host& host_;
  Watcher watcher_;
};

template <class T> void wrap_entry(Registry<T>& registry, const json& given, const Wrap<T>& wrap) {
  Entry<T> entry = registry.find(given);
  const json config = registry.complete(given);
  entry.make = [inner = registry, config, wrap](const json& options, Host& host) -> std::unique_ptr<T> {
    auto made = inner.make(options, host);
    if (options != config) return made;  // another of the name, inside the one that is wrapped
    return wrap(std::move(made), host);
  };
  registry.replace(config.at("name").get<std::string>(), entry);
}

std::string brief(const json& config) {
  std::string s = config.at("name").get<std::string>();
  for (const auto& [key, value] : config.items())
    if (key != "name" && key != "dtype" && key != "kv_dtype" && !value.is_null())
      s += " " + (value.is_string() ? value.get<std::string>() : value.dump());
  return s;
}

}  // namespace

std::int64_t page_bytes_of(const Subject& subject, const Models& models, int rows) {
  const ModelInfo& target = models.target->info();
  return as_served(target, subject.registries.drafters.traits(subject.configs.drafter, target)).kv.page_bytes(rows);
}

std::string Subject::text() const {
  return brief(configs.drafter) + ", " + brief(configs.policy) + ", " + brief(configs.verifier);
}

Registries all_registries() {
  Registries registries;
  register_drafters(registries);
  register_verifiers(registries);
  return registries;
}

Soundness soundness_of(const Registries& registries, const json& verifier) {
  return traits_of(registries.verifiers, verifier);
}

Needs needs_of(const Registries& registries, const json& drafter) { return traits_of(registries.drafters, drafter); }

PolicyTraits policy_of(const Registries& registries, const json& policy) {
  PolicyTraits traits = traits_of(registries.policies, policy);
  traits.most.nodes = std::min(traits.most.nodes, kMaxNodes), traits.most.depth = std::min(traits.most.depth, kMaxPath);
  return traits;
}

bool sound(const Registries& registries, const json& drafter, const json& verifier) {
  const Soundness soundness = soundness_of(registries, verifier);
  const Needs needs = needs_of(registries, drafter);
  const auto taken = [&](Drawn d) { return std::ranges::find(soundness.takes, d) != soundness.takes.end(); };
  return std::ranges::all_of(needs.proposes, taken) && needs.races.value_or(soundness.race) == soundness.race;
}

Subject plain(const Subject& subject) {
  Subject s = subject;
  s.configs.drafter = {{"name", "none"}};
  s.configs.policy = {{"name", "fixed"}, {"length", 0}};
  return s;
}

Subject around(const Subject& subject, const Wrap<Drafter>& wrap) {
  Subject s = subject;
  wrap_entry(s.registries.drafters, subject.configs.drafter, wrap);
  return s;
}

Subject around(const Subject& subject, const Wrap<LengthPolicy>& wrap) {
  Subject s = subject;
  wrap_entry(s.registries.policies, subject.configs.policy, wrap);
  return s;
}

Subject watched(const Subject& subject, Watcher watcher) {
  return around(subject, [watcher = std::move(watcher)](std::unique_ptr<Drafter> made, Host& host) {
    return std::make_unique<WatchedDrafter>(std::move(made), host, watcher);
  });
}

Models table_models(const TableModel::Options& target) {
  return {std::make_shared<TableModel>(target), [target](const ModelChoice& choice) {
            return std::make_shared<TableModel>(named_table(choice.directory, target));
          }};
}

std::vector<TestRequest> random_requests(int count, int vocab, int longest, int max_new_tokens, std::uint64_t seed) {
  std::vector<TestRequest> requests;
  const Draws draws{seed, 0, 0, 0};
  const auto below = [&](int n, int i, int k) {
    return int(draws.uniform({Role::draft, std::uint32_t(i), std::uint32_t(k)}) * n);
  };
  for (int i = 0; i < count; ++i) {
    TestRequest request{{}, std::uint64_t(i + 1), max_new_tokens};
    for (int k = below(longest, i, 0); k >= 0; --k) request.prompt.push_back(below(vocab, i, k + 1));
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<int> children(const DraftTree& tree, int node) {
  std::vector<int> found;
  for (int n = node + 1; n < tree.nodes; ++n)
    if (parent_of(tree, n) == node && token_of(tree, n) >= 0 && !tree.aside(n)) found.push_back(n);
  return found;
}

std::vector<double> proposed(const DraftTree& tree, int node) {
  if (std::size_t(node) >= tree.q.distributions.size() || !tree.q.distributions[std::size_t(node)]) return {};
  return probabilities(tree.q.distributions[std::size_t(node)][0]);
}

std::vector<double> stated(const DraftTree& tree, int node, bool of_race) {
  const auto once = [&](int n) {
    return of_race ? drawn_of(tree, n) != Drawn::certain : drawn_of(tree, n) == Drawn::without_replacement;
  };
  const int parent = parent_of(tree, node);
  std::vector<double> q = proposed(tree, parent);
  if (!once(node) || q.empty()) return q;
  for (int n = 1; n < node; ++n)
    if (parent_of(tree, n) == parent && once(n) && token_of(tree, n) >= 0) q[std::size_t(token_of(tree, n))] = 0;
  const double mass = std::accumulate(q.begin(), q.end(), 0.0);
  for (double& x : q) x = mass > 0 ? x / mass : 0;
  return q;
}

std::string text_of(const DraftTree& tree) {
  std::string text;
  for (int n = 1; n < tree.nodes; ++n)
    text += (n > 1 ? " " : "") + std::to_string(parent_of(tree, n)) + ">" + std::to_string(token_of(tree, n));
  return "[" + text + "]";
}

std::string text_of(const Sequence& sequence) {
  return "sequence " + std::to_string(sequence.id) + " at length " + std::to_string(sequence.length());
}

std::string text_of(std::span<const Token> tokens) {
  std::string s;
  for (const Token t : tokens) s += (s.empty() ? "" : " ") + std::to_string(t);
  return s;
}

std::string text_of(double figure) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", figure);
  return text;
}

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

RunOutcome run_scenario(const Run& run, const AfterStep& after) {
  const auto& [subject, scenario, backend, models, requests] = run;
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

namespace {

constexpr int kRows = 16, kPages = 512;

}  // namespace

TargetStates::TargetStates(Backend& backend, const Models& models, const Needs& needs)
    : needed_(needs.views_target || !needs.hidden.empty()),
      pool_(backend, with_taps(models.target->info(), needs.hidden, needs.page_bounds).page_bytes(kRows),
            needed_ ? kPages : 1),
      model_(backend, models.target, pool_, false, needs.hidden, needs.page_bounds) {}

HiddenStates TargetStates::of(const Sequence& sequence) {
  if (!needed_) return {};
  const int missing = int(model_.unseen(sequence).size()) - 1;
  if (missing > 0) {
    if (!model_.reserve(sequence, missing)) throw Error("the target's states of a law do not fit into its pages");
    model_.run(std::array{Segment{&sequence, missing}});
    (void)model_.unseen(sequence);  // keeps what was fed
  }
  return model_.hidden(sequence);
}

void TargetStates::forget(const Sequence& sequence) {
  model_.forget(sequence);
  (void)model_.books()->seconds();  // else it keeps the times of all forwards
}

}  // namespace foretoken::conformance
