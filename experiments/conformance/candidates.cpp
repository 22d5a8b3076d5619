// Which combinations of drafter, policy and verifier are checked.
#include <algorithm>
#include <set>

#include "experiments/conformance/check.h"
#include "experiments/conformance/configurations.h"
#include "experiments/conformance/guarded.h"
#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

using nlohmann::json;

// All configs that the kit tries, those of one name, or the given one.
template <class T> std::vector<json> chosen(const Registry<T>& registry, const json& given) {
  if (given.is_null()) return configurations(registry);
  if (given.size() > 1) return {configured(registry, given)};
  return configurations(registry, given.at("name").template get<std::string>());
}

}  // namespace

std::vector<Candidate> candidates(const Choice& choice) {
  const Registries r = guarded(choice.registries);
  const json fixed{{"name", "fixed"}, {"length", 4}}, of_policies{{"name", "draft_model"}, {"model", "table:other"}};
  // A policy is checked under one drafter: it decides on lengths, whatever the drafter.
  const bool policy_alone = choice.drafter.is_null() && !choice.policy.is_null();
  const auto drafters = chosen(r.drafters, policy_alone ? of_policies : choice.drafter);
  auto verifiers = chosen(r.verifiers, choice.verifier);
  const bool own_verifier = !choice.verifier.is_null() || (choice.drafter.is_null() && choice.policy.is_null());
  // What a drafter or a policy owes shows beside exact verifiers; lossy ones hide it.
  if (!own_verifier) std::erase_if(verifiers, [&](const json& verifier) { return !soundness_of(r, verifier).exact(); });
  // A policy owes the same beside all: one verifier that draws races and one that does not show it.
  std::set<bool> races;
  if (policy_alone && !own_verifier)
    std::erase_if(verifiers, [&](const json& verifier) {
      const Soundness s = soundness_of(r, verifier);
      return s.acceptance != Acceptance::overlap || !races.insert(s.race).second;
    });
  std::vector<Candidate> all;
  const auto add = [&](const json& drafter, const json& policy, const json& verifier, bool own) {
    if (sound(r, drafter, verifier)) all.push_back(candidate({r, {drafter, policy, verifier}}, own, own_verifier));
  };
  for (const json& drafter : drafters)
    for (const json& verifier : verifiers)
      add(drafter, choice.policy.is_null() ? fixed : configured(r.policies, choice.policy), verifier,
          !choice.policy.is_null());
  if (choice.policy.is_null() && choice.drafter.is_null())
    for (const json& policy : configurations(r.policies))
      if (policy["name"] != "fixed")
        for (const json& verifier : verifiers) add(of_policies, policy, verifier, true);
  if (all.empty()) {
    const auto takes = soundness_of(r, verifiers.at(0)).takes;
    std::string kinds, taken;
    for (const Drawn d : needs_of(r, drafters.at(0)).proposes)
      kinds += (kinds.empty() ? "" : ", ") + std::string(foretoken::name_of(d));
    for (const Drawn d : takes) taken += (taken.empty() ? "" : ", ") + std::string(foretoken::name_of(d));
    throw Error("no chosen verifier is sound for the drafter: its nodes are drawn '" + kinds +
                "', the verifier takes '" + taken + "'; choose another pair");
  }
  return all;
}

std::vector<std::string> left_out(const Choice& choice) {
  const Registries& r = choice.registries;
  std::vector<std::string> all;
  const auto add = [&](bool all_of_kind, const std::vector<std::string>& sentences) {
    if (all_of_kind) all.insert(all.end(), sentences.begin(), sentences.end());
  };
  add(choice.drafter.is_null(), not_configured(r.drafters));
  add(choice.drafter.is_null() && choice.policy.is_null(), not_configured(r.policies));
  add(choice.verifier.is_null(), not_configured(r.verifiers));
  return all;
}

}  // namespace foretoken::conformance
