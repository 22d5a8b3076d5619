#include "experiments/conformance/scenario.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "experiments/conformance/configurations.h"
#include "experiments/conformance/target_states.h"
#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

using nlohmann::json;

// A Host without an engine.
struct BareHost {
  static constexpr std::int64_t kPageBytes = 1 << 12;  // for a position of any drafter's model
  explicit BareHost(const Registries& registries)
      : models(table_models({})),
        backend(make_reference_backend()),
        pool(*backend, kPageBytes, 4),
        states(*backend, models, Needs{.views_target = true, .page_bounds = true}),
        host(*backend, pool, models.target->info(), models.load, false, {models.target, states.cache(), &registries}) {}
  Models models;
  std::unique_ptr<Backend> backend;
  PagePool pool;
  TargetStates states;
  Host host;
};

// Of the kit's target.
template <class T> typename T::Traits traits_of(const Registry<T>& registry, const json& config) {
  return registry.traits(config, table_models({}).target->info());
}

void expect_kept(const Needs& needs, const json& drafter) {
  try {
    (void)with_taps(table_models({}).target->info(), needs.hidden);
  } catch (const Error& e) {
    throw Error("the drafter '" + drafter.at("name").get<std::string>() +
                "' reads states that no model of this kit has: " + e.what());
  }
}

template <class T>
std::string refusal_of(const Registries& registries, const Registry<T>& registry, const json& config) {
  try {
    [[maybe_unused]] const auto traits = traits_of(registry, config);
    if constexpr (std::is_same_v<T, Drafter>) expect_kept(traits, config);
    BareHost bare(registries);
    (void)registry.make(config, bare.host);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

class WatchedDrafter : public Drafter {
 public:
  WatchedDrafter(std::unique_ptr<Drafter> inner, Host& host, Watcher watcher)
      : inner_(std::move(inner)), host_(host), watcher_(std::move(watcher)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    auto trees = inner_->draft(requests);
    watcher_(host_, requests, trees);
    return trees;
  }
  void observe(std::span<const Outcome> outcomes) override { inner_->observe(outcomes); }
  void observe_step(const StepReport& report) override { inner_->observe_step(report); }
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }

 private:
  std::unique_ptr<Drafter> inner_;
  Host& host_;
  Watcher watcher_;
};

template <class T> void wrap_entry(Registry<T>& registry, const json& given, const Around<T>& wrap) {
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

std::string refusal_of_drafter(const Registries& registries, const json& config) {
  return refusal_of(registries, registries.drafters, config);
}

std::string refusal_of_policy(const Registries& registries, const json& config) {
  return refusal_of(registries, registries.policies, config);
}

std::string refusal_of_verifier(const Registries& registries, const json& config) {
  return refusal_of(registries, registries.verifiers, config);
}

bool sound(const Registries& registries, const json& drafter, const json& verifier) {
  const Soundness soundness = soundness_of(registries, verifier);
  const Needs needs = needs_of(registries, drafter);
  const auto taken = [&](Drawn d) { return std::ranges::find(soundness.takes, d) != soundness.takes.end(); };
  return std::ranges::all_of(needs.proposes, taken) && needs.races.value_or(soundness.race) == soundness.race;
}

std::vector<Subject> subjects(const Registries& registries, int length, const std::vector<json>& drafters) {
  std::vector<Subject> all;
  for (std::size_t i = 0; i < drafters.size(); ++i) {
    std::vector<json> verifiers;
    for (const json& verifier : configurations(registries.verifiers))
      if (soundness_of(registries, verifier).exact() && sound(registries, drafters[i], verifier))
        verifiers.push_back(verifier);
    const std::size_t step = drafters.size() <= 3 ? 1 : (verifiers.size() + 1) / 2;
    for (std::size_t v = 0; v < verifiers.size(); ++v)
      if ((v + i) % step == 0)
        all.push_back({registries, {drafters[i], {{"name", "fixed"}, {"length", length}}, verifiers[v]}});
  }
  return all;
}

std::vector<Subject> subjects(const Registries& registries, int length) {
  return subjects(registries, length, configurations(registries.drafters));
}

Subject plain(const Subject& subject) {
  Subject s = subject;
  s.configs.drafter = {{"name", "none"}};
  s.configs.policy = {{"name", "fixed"}, {"length", 0}};
  return s;
}

Subject around(const Subject& subject, const Around<Drafter>& wrap) {
  Subject s = subject;
  wrap_entry(s.registries.drafters, subject.configs.drafter, wrap);
  return s;
}

Subject around(const Subject& subject, const Around<LengthPolicy>& wrap) {
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

}  // namespace foretoken::conformance
