// Pairs of a drafter and an exact verifier for tests of laws.
#pragma once
#include <algorithm>
#include <vector>

#include "experiments/conformance/components.h"

namespace foretoken::test {

// Sound ones, under the fixed policy of this length: all of them for up to three drafters; else one or two verifiers
// for each drafter in turn, so that every drafter and every exact verifier is there.
inline std::vector<conformance::Subject> subjects(const Registries& registries, int length,
                                                  const std::vector<nlohmann::json>& drafters) {
  using namespace conformance;
  std::vector<Subject> all;
  for (std::size_t i = 0; i < drafters.size(); ++i) {
    std::vector<nlohmann::json> verifiers;
    for (const nlohmann::json& verifier : configurations(registries.verifiers))
      if (soundness_of(registries, verifier).exact() && sound(registries, drafters[i], verifier))
        verifiers.push_back(verifier);
    const std::size_t step = drafters.size() <= 3 ? 1 : (verifiers.size() + 1) / 2;
    for (std::size_t v = 0; v < verifiers.size(); ++v)
      if ((v + i) % step == 0)
        all.push_back({registries, {drafters[i], {{"name", "fixed"}, {"length", length}}, verifiers[v]}});
  }
  return all;
}

inline std::vector<conformance::Subject> subjects(const Registries& registries, int length) {
  return subjects(registries, length, conformance::configurations(registries.drafters));
}

}  // namespace foretoken::test
