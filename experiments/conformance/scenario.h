// What a law is tested on: a subject (configs of a drafter, a policy and a verifier, from any registries, plugins
// included) and a scenario (sampling, limits, engine options), with the models that the target and the drafters use. No
// drafter or verifier is known by name.
#pragma once
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
// Why a component cannot be used, whatever it is paired with: it cannot be made, or needs what nothing serves. Empty
// where it can.
std::string refusal_of_drafter(const Registries& registries, const nlohmann::json& config);
std::string refusal_of_policy(const Registries& registries, const nlohmann::json& config);
std::string refusal_of_verifier(const Registries& registries, const nlohmann::json& config);
bool sound(const Registries& registries, const nlohmann::json& drafter, const nlohmann::json& verifier);
// Sound pairs of a drafter and an exact verifier, under the fixed policy of this length: all of them for up to three
// drafters; else one or two verifiers for each drafter in turn, so that every drafter and every exact verifier is
// there.
std::vector<Subject> subjects(const Registries& registries, int length);
std::vector<Subject> subjects(const Registries& registries, int length, const std::vector<nlohmann::json>& drafters);
// The same verifier without speculation.
Subject plain(const Subject& subject);

// The subject with something of the caller's around its drafter or its policy. One inside another of the name is left
// as it is.
template <class T> using Around = std::function<std::unique_ptr<T>(std::unique_ptr<T> made, Host& host)>;
Subject around(const Subject& subject, const Around<Drafter>& wrap);
Subject around(const Subject& subject, const Around<LengthPolicy>& wrap);
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
// Called after every step, with all sequences that still run.
using AfterStep = std::function<void(Engine&, const StepReport&, std::span<const Sequence* const>)>;
RunOutcome run_scenario(const Subject& subject, const Scenario& scenario, Backend& backend, const Models& models,
                        std::span<const TestRequest> requests, const AfterStep& after = {});

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
};

std::string text_of(std::span<const Token> tokens);  // "0 2 1"
std::string text_of(double figure);                  // to three digits: small ones must not read as 0

}  // namespace foretoken::conformance
