// The part of a run document that all tests of runs of the demo models share.
#pragma once
#include <nlohmann/json.hpp>

namespace foretoken::test {

// The demo models on one thread, six prompts.
inline nlohmann::json demo_models() {
  return {{"target", {{"model", "experiments/models/target"}}},
          {"drafter", {{"name", "draft_model"}, {"model", "experiments/models/draft"}}},
          {"engine", {{"device", "cpu"}, {"threads", 1}}},
          {"workload", {{"prompts", "experiments/prompts.jsonl"}, {"limit", 6}}}};
}

}  // namespace foretoken::test
