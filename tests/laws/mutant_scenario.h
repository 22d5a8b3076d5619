// Shared by the mutation tests: subjects, cases small enough for a full enumeration, and the check that a law failed.
#pragma once
#include <gtest/gtest.h>

#include "experiments/conformance/laws.h"
#include "tests/support/mutants.h"

namespace foretoken::test {

using namespace conformance;
using nlohmann::json;

inline const json kDraftModel{{"name", "draft_model"}, {"model", "table:far"}};
inline const json kSampling{{"name", "speculative_sampling"}};
inline const json kMutant{{"name", "mutant"}};

inline Subject subject(const Registries& registries, const json& drafter, const json& verifier, int length = 2) {
  return {registries, {drafter, {{"name", "fixed"}, {"length", length}}, verifier}};
}

inline ExactCase three_tokens() {
  return {.target = {.vocab = 3, .order = 2, .seed = 81, .strict = false}, .prompts = {{0, 1}}, .tokens = 3};
}
inline ExactCase two_tokens() {
  return {.target = {.vocab = 2, .order = 2, .seed = 83, .impossible = 0, .strict = false},
          .prompts = {{0, 1, 1}},
          .tokens = 3};
}

// The enumeration completed and found another distribution; it did not fail for another reason.
inline bool refuted(const Finding& f) { return !f.holds && f.what.find("total variation") != std::string::npos; }

}  // namespace foretoken::test
