// The entry of a drafter whose model is a head on states of the target: its options, how its trees grow, and the head
// itself, which all engines of a sweep share.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drafters/growth.h"
#include "drafters/kept_with_target.h"

namespace foretoken {

struct HeadKind {
  std::string name;  // of the drafter
  std::string summary, source;
  // The states that the head reads, before it is loaded.
  std::function<std::vector<Tap>(const nlohmann::json& head, const ModelInfo& target)> taps;
  // A head that is a whole model, with a cache of its own. `dtype`: of the weights.
  std::function<std::shared_ptr<Model>(const nlohmann::json& head, const std::string& dtype, Host& host)> load = {};
  // Or another one in rounds of one engine's drafter.
  std::function<std::unique_ptr<LevelModel>(const nlohmann::json& head, const std::string& dtype, Host& host)> open =
      {};
  // That it reads of {"random": SHAPE, "seed": 1, ...} besides, with the values of its description.
  std::vector<std::pair<std::string, int>> random_keys = {};
  // The keys of an inflated head besides "directory" and "inflate" (inflated_head.h); absent: none of this kind is.
  std::optional<std::vector<std::string>> inflated_keys = {};
  bool marginals = false;                     // LevelModel::marginals()
  std::vector<nlohmann::json> examples = {};  // Entry::examples besides those that all have
};

// The option "head" as the open functions read it. A key that such a head does not have is an Error, and so is one that
// is inflated though its kind, or the target, is not.
nlohmann::json read_head(const HeadKind& kind, const nlohmann::json& options, const ModelInfo& target);

// The options "head" and "dtype" of such a drafter, and what they name.
std::vector<Option> head_options(const HeadKind& kind);
std::shared_ptr<Model> load_head(const HeadKind& kind, const nlohmann::json& options, Host& host);

Entry<Drafter> head_entry(HeadKind kind);

}  // namespace foretoken
