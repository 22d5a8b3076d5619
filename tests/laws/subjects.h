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

// One of several parts of them, every so many-th: long laws are tests by part, which run beside one another.
inline std::vector<conformance::Subject> part_of(const std::vector<conformance::Subject>& all, int part, int parts) {
  std::vector<conformance::Subject> chosen;
  for (std::size_t i = std::size_t(part); i < all.size(); i += std::size_t(parts)) chosen.push_back(all[i]);
  return chosen;
}

}  // namespace foretoken::test
