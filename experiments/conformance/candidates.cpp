// Which combinations of drafter, policy and verifier are checked.
#include <algorithm>
#include <set>

#include "experiments/conformance/check.h"
#include "experiments/conformance/components.h"
#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

using nlohmann::json;
// All configs that the kit tries, those of one name, or the given one.
template <class T> std::vector<json> configs_of(const Registry<T>& registry, const json& given) {
  if (given.is_null()) return configurations(registry);
  if (given.size() > 1) return {configured(registry, given)};
  return configurations(registry, given.at("name").template get<std::string>());
}

// Those of them that can be used; a given one that cannot is an Error.
template <class T> std::vector<json> chosen(const Registries& r, const Registry<T>& registry, const json& given) {
  std::vector<json> all;
  for (json& config : configs_of(registry, given)) {
    const std::string why = refusal_of(r, registry, config);
    if (!why.empty() && !given.is_null()) throw Error(why);
    if (why.empty()) all.push_back(std::move(config));
  }
  return all;
}

// The drafter beside which a policy is checked: it decides on lengths, whatever the drafter. Of its own plugin where
// that has one, since they may be made for each other, else the draft model, and in any case one that serves what the
// policy's budgets ask for.
json drafter_beside(const Registries& r, const json& policy) {
  const std::string plugin = r.policies.find(policy).plugin;
  const bool confidence = policy_of(r, policy).most.confidence != 0;
  std::vector<json> all = chosen(r, r.drafters, nullptr);
  std::erase_if(all, [&](const json& drafter) {
    const Needs needs = needs_of(r, drafter);
    return needs.proposes.empty() || (confidence && !needs.confidence);
  });
  const auto rank = [&](const json& drafter) {
    if (!plugin.empty() && r.drafters.find(drafter).plugin == plugin) return 0;
    return drafter.at("name") == "draft_model" ? 1 : 2;
  };
  if (all.empty())
    throw Error("the policy '" + policy.at("name").get<std::string>() +
                "' sets Budget::confidence, which no drafter that the kit can make serves (Needs::confidence); name "
                "one that does as --drafter, with its options, beside --policy");
  return *std::ranges::min_element(all, {}, rank);
}

// What a policy owes it owes beside all verifiers: one of those that take the drafter's nodes and draw races, and one
// that does not show it.
void keep_two(const Registries& r, const json& drafter, std::vector<json>& verifiers) {
  std::set<bool> races;
  std::erase_if(verifiers, [&](const json& verifier) {
    const Soundness s = soundness_of(r, verifier);
    return s.acceptance != Acceptance::overlap || !sound(r, drafter, verifier) || !races.insert(s.race).second;
  });
}

[[noreturn]] void refuse_pairs(const Registries& r, const json& drafter, const json& verifier) {
  std::string kinds, taken;
  for (const Drawn d : needs_of(r, drafter).proposes)
    kinds += (kinds.empty() ? "" : ", ") + std::string(foretoken::name_of(d));
  for (const Drawn d : soundness_of(r, verifier).takes)
    taken += (taken.empty() ? "" : ", ") + std::string(foretoken::name_of(d));
  throw Error("no chosen verifier is sound for the drafter: its nodes are drawn '" + kinds + "', the verifier takes '" +
              taken + "'; choose another pair");
}

bool is_alone(const Choice& choice) { return choice.drafter.is_null() && !choice.policy.is_null(); }

}  // namespace

std::vector<Candidate> candidates(const Choice& choice) {
  const Registries r = guarded(choice.registries);
  const json fixed{{"name", "fixed"}, {"length", 4}};
  std::vector<json> policies{fixed};
  if (!choice.policy.is_null()) policies = chosen(r, r.policies, choice.policy);
  const auto drafters =
      is_alone(choice) ? std::vector<json>{drafter_beside(r, policies.front())} : chosen(r, r.drafters, choice.drafter);
  const auto verifiers_of_all = chosen(r, r.verifiers, choice.verifier);
  const bool own_verifier = !choice.verifier.is_null() || (choice.drafter.is_null() && choice.policy.is_null());
  auto verifiers = verifiers_of_all;
  // What a drafter or a policy owes shows beside exact verifiers; lossy ones hide it.
  if (!own_verifier) std::erase_if(verifiers, [&](const json& verifier) { return !soundness_of(r, verifier).exact(); });
  if (is_alone(choice) && !own_verifier) keep_two(r, drafters.front(), verifiers);
  std::vector<Candidate> all;
  const auto add = [&](const json& drafter, const json& policy, const json& verifier, bool own) {
    // Of several examples of a policy, those that the drafter does not serve are left out.
    const bool served = policy_of(r, policy).most.confidence == 0 || needs_of(r, drafter).confidence;
    if (!served && policies.size() > 1) return;
    if (own) expect_confidence({drafter, policy, verifier}, policy_of(r, policy).most, needs_of(r, drafter));
    if (sound(r, drafter, verifier)) all.push_back(candidate({r, {drafter, policy, verifier}}, own, own_verifier));
  };
  for (const json& drafter : drafters)
    for (const json& policy : policies)
      for (const json& verifier : verifiers) add(drafter, policy, verifier, !choice.policy.is_null());
  if (choice.policy.is_null() && choice.drafter.is_null())
    for (const json& policy : chosen(r, r.policies, nullptr))
      if (policy["name"] != "fixed") {
        const json drafter = drafter_beside(r, policy);
        for (const json& verifier : verifiers) add(drafter, policy, verifier, true);
      }
  if (all.empty()) refuse_pairs(r, drafters.at(0), verifiers_of_all.at(0));
  return all;
}

std::vector<std::string> left_out(const Choice& choice) {
  const Registries r = guarded(choice.registries);
  std::vector<std::string> all;
  const auto add = [&](const auto& registry) {
    std::ranges::copy(not_configured(registry), std::back_inserter(all));
    for (const json& config : configurations(registry))
      if (const std::string why = refusal_of(r, registry, config); !why.empty()) all.push_back(why);
  };
  if (choice.drafter.is_null()) add(r.drafters);
  if (choice.drafter.is_null() && choice.policy.is_null()) add(r.policies);
  if (choice.verifier.is_null()) add(r.verifiers);
  return all;
}

std::vector<std::string> pairings(const Choice& choice) {
  if (!is_alone(choice)) return {};
  const Registries r = guarded(choice.registries);
  const json policy = chosen(r, r.policies, choice.policy).front();
  return {"the policy '" + policy.at("name").get<std::string>() + "' was checked beside the drafter " +
          drafter_beside(r, policy).dump() + "; --drafter names another"};
}

}  // namespace foretoken::conformance
