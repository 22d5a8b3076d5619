// What a law is tested on: a subject (configs of a drafter, a policy and a verifier, from any registries, plugins
// included) and a scenario (sampling, limits, engine options), with the models that the target and the drafters use. No
// drafter or verifier is known by name.
#pragma once
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/conformance/table_model.h"
#include "framework/engine/engine.h"

namespace foretoken::conformance {

using Tokens = std::vector<Token>;

struct Subject {
  Registries registries;
  ComponentConfigs configs;
  std::string text() const;  // "draft_model (table:other), fixed 3, coupled"
};

// All built-in components.
Registries all_registries();
// What a verifier promises and accepts, and what a drafter needs, without an engine.
Soundness soundness_of(const Registries& registries, const nlohmann::json& verifier);
Needs needs_of(const Registries& registries, const nlohmann::json& drafter);
// The traits of a policy, its largest budget as the engine cuts it.
PolicyTraits policy_of(const Registries& registries, const nlohmann::json& policy);
bool sound(const Registries& registries, const nlohmann::json& drafter, const nlohmann::json& verifier);
// The same verifier without speculation.
Subject plain(const Subject& subject);

// The subject with something of the caller's around its drafter or its policy. One inside another of the name is left
// as it is.
template <class T> using Wrap = std::function<std::unique_ptr<T>(std::unique_ptr<T> made, Host& host)>;
Subject around(const Subject& subject, const Wrap<Drafter>& wrap);
Subject around(const Subject& subject, const Wrap<LengthPolicy>& wrap);
// Called after every call of a drafter.
using Watcher = std::function<void(Host&, std::span<const DraftRequest>, std::span<const DraftTree>)>;
Subject watched(const Subject& subject, Watcher watcher);

struct Models {
  std::shared_ptr<Model> target;
  Host::Load load;
};
Models table_models(const TableModel::Options& target);

struct TestRequest {
  Tokens prompt;
  std::uint64_t stream = 1;
  int max_new_tokens = 16;
  int like = -1;                       // number of an earlier request, of which this is another sample
  std::optional<Sampling> sampling{};  // its own, instead of the scenario's
};
// Random prompts of 1 to `longest` tokens, streams 1, 2, ...
std::vector<TestRequest> random_requests(int count, int vocab, int longest, int max_new_tokens, std::uint64_t seed);

struct Scenario {
  Sampling sampling{.temperature = 1};
  std::vector<Token> stop_tokens{};
  EngineOptions engine{.batch = 4, .step_rows = 256, .page_rows = 2, .pages = 64, .check = true};
  int enough = 1 << 30;                   // stop once every output has so many tokens
  int group = 0;                          // so many requests in turn end as soon as all of them have; 0: all
  std::function<void(Limits&)> limits{};  // a planted bug of the limits
  std::shared_ptr<Kept> kept{};           // what its components share with those of other runs; absent: nothing
};

struct RunOutcome {
  std::vector<Tokens> outputs;  // what was generated, in the order of the requests
  long rounds = 0, drafted = 0, tested = 0, accepted = 0, rejections = 0, preempted = 0;
  std::uint64_t prefix_rows = 0, draft_rows = 0;  // reused from prefixes; fed to the models of drafters
  int pages_left = 0;                             // in use at the end
};
// What most laws look at: these requests, decoded by a subject.
struct Run {
  const Subject& subject;
  const Scenario& scenario;
  Backend& backend;
  const Models& models;
  std::span<const TestRequest> requests;
  Run with(const Subject& other) const { return {other, scenario, backend, models, requests}; }
};
// Called after every step, with all sequences that still run.
using AfterStep = std::function<void(Engine&, const StepReport&, std::span<const Sequence* const>)>;
RunOutcome run_scenario(const Run& run, const AfterStep& after = {});

// Bytes of a page of an engine with these components, for so many positions of the target.
std::int64_t page_bytes_of(const Subject& subject, const Models& models, int rows);

// The result of a law.
struct Finding {
  bool holds = true;
  std::string what;                 // the subject and the measure; if it fails, every reason
  std::string why{};                // the first reason alone
  std::string where{};              // of a p-value: what is least as expected, with its counts
  double measure = 0;               // as the law defines it: an error, a p-value, a z-score, a count
  long cases = 0;                   // what was compared
  long accepted = 0, rejected = 0;  // drafts; a law that saw none has shown nothing
  int cut_to = 0;  // compared tokens of every output, if fewer than the scenario asks for; 0: not fewer
  std::map<std::string, long> seen{};  // what else occurred: preemptions, rows served from prefixes, ...

  void fail(const std::string& reason) {
    holds = false;
    if (why.empty()) why = reason;
    what += (what.empty() ? "" : "; ") + reason;
  }
  void add(const RunOutcome& outcome) {
    accepted += outcome.accepted;
    rejected += outcome.rejections;
  }
};

// How far two distributions are apart.
template <class Outcome> struct Apart {
  Apart(const std::map<Outcome, double>& found, const std::map<Outcome, double>& law) {
    std::map<Outcome, double> all = law;
    for (const auto& [outcome, p] : found) all.try_emplace(outcome, 0.0);
    for (const auto& [outcome, unused] : all) {
      const auto got = found.find(outcome), wanted = law.find(outcome);
      const double off = std::abs((got == found.end() ? 0 : got->second) - (wanted == law.end() ? 0 : wanted->second));
      variation += off / 2;
      if (off > worst || std::isnan(off)) worst = off, at = outcome;
    }
  }
  double variation = 0, worst = 0;  // in total; of the outcome `at`
  Outcome at{};
};

// Nodes of a tree whose tokens the host has.
inline Drawn drawn_of(const DraftTree& tree, int n) { return Drawn(*tree.q.drawn.row<std::uint8_t>(n)); }
inline Token token_of(const DraftTree& tree, int n) { return *tree.tokens.row<Token>(n); }
inline int parent_of(const DraftTree& tree, int n) { return *tree.parents.row<std::int32_t>(n); }
// The children of a node, without absent ones and those aside.
std::vector<int> children(const DraftTree& tree, int node);
// The proposal's distribution below a node; empty where there is none.
std::vector<double> proposed(const DraftTree& tree, int node);
// That of a node's token: siblings without repeats lack the earlier ones, those of one race whatever they are called.
std::vector<double> stated(const DraftTree& tree, int node, bool of_race);
// "[0>2 1>0]": parent>token of each node.
std::string text_of(const DraftTree& tree);
std::string text_of(const Sequence& sequence);  // "sequence 3 at length 17"

// A drafter around another.
class Around : public Drafter {
 public:
  explicit Around(std::unique_ptr<Drafter> inner) : inner_(std::move(inner)) {}
  void observe(std::span<const Outcome> outcomes) override { inner_->observe(outcomes); }
  void observe_step(const StepReport& report) override { inner_->observe_step(report); }
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }

 protected:
  std::unique_ptr<Drafter> inner_;
};

std::string text_of(std::span<const Token> tokens);  // "0 2 1"
std::string text_of(double figure);                  // to three digits: small ones must not read as 0

// A Host without an engine, with pages of its own and, where a drafter reads them, the target's cache.
struct BareHost {
  BareHost(Backend& backend, const Models& models, const Registries& registries, std::int64_t page_bytes = 64,
           int pages = 1, KvCache* target = nullptr)
      : pool(backend, page_bytes, pages),
        host(backend, pool, models.target->info(), models.load, false, {models.target, target, &registries}) {}
  PagePool pool;
  Host host;
};

// The target's hidden states and its cache for drafters that a law calls without an engine.
class TargetStates {
 public:
  // Of a drafter's needs. Where it reads nothing of the target, nothing is computed.
  TargetStates(Backend& backend, const Models& models, const Needs& needs);
  // Of all tokens but the last. Valid until the next call for a sequence of this id, or forget().
  HiddenStates of(const Sequence& sequence);
  void forget(const Sequence& sequence);
  KvCache* cache() { return needed_ ? &model_.cache() : nullptr; }

 private:
  bool needed_;
  PagePool pool_;
  CachedModel model_;
};

}  // namespace foretoken::conformance
