// Candidates with other options than the configured ones.
#include "experiments/conformance/law_cases.h"
#include "experiments/conformance/other_options.h"
#include "experiments/conformance/target_states.h"
#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

using nlohmann::json;

// Throws what the component throws as it is made.
template <class T> void expect_made(const Registry<T>& registry, const json& config, const Registries& registries) {
  ReferenceBackend backend;
  const Models models = table_models({});
  PagePool pool(backend, 1 << 12, 4);
  TargetStates states(backend, models, Needs{.views_target = true, .page_bounds = true});
  Host host(backend, pool, models.target->info(), models.load, false, {models.target, states.cache(), &registries});
  (void)registry.make(config, host);
}

// Nothing where a component refuses these options, or the verifier the drafter that has them.
template <class T> void add(const Candidate& c, const Registry<T>& registry, json ComponentConfigs::* which,
                            std::vector<OtherCandidate>& all) {
  const json given = registry.complete(c.subject.configs.*which);
  for (const json& config : other_options(registry, given)) {
    Subject s = c.subject;
    json changed = json::object();
    for (const auto& [key, value] : config.items())
      if (given.at(key) != value) changed[key] = value;
    s.configs.*which = config;
    try {
      expect_made(registry, config, s.registries);
      if (sound(s.registries, s.configs.drafter, s.configs.verifier))
        all.push_back({candidate(s, c.own_policy, c.own_verifier), changed.dump()});
    } catch (const Error&) {
    }
  }
}

}  // namespace

std::vector<OtherCandidate> with_other_options(const Candidate& c) {
  std::vector<OtherCandidate> all;
  const Registries& r = c.subject.registries;
  if (c.own_policy)
    add(c, r.policies, &ComponentConfigs::policy, all);
  else
    add(c, r.drafters, &ComponentConfigs::drafter, all);
  return all;
}

}  // namespace foretoken::conformance
