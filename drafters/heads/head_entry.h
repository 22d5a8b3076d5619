// The entry of a drafter whose model is a head on states of the target: its options, how its trees grow, and the head
// itself, which all engines of a sweep share.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "drafters/growth.h"

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
  bool marginals = false;                     // LevelModel::marginals()
  std::vector<nlohmann::json> examples = {};  // Entry::examples besides those that all have
};

// The options "head" and "dtype" of such a drafter, and what they name. A key that a random head does not have is an
// Error.
std::vector<Option> head_options(const HeadKind& kind);
std::shared_ptr<Model> load_head(const HeadKind& kind, const nlohmann::json& options, Host& host);

Entry<Drafter> head_entry(HeadKind kind);

// What `make` made of these options when it was first asked for on this device, with this target. `kind`: the drafter.
template <class Head> std::shared_ptr<Head> kept_head(const std::string& kind, const std::string& options, Host& host,
                                                      const std::function<std::shared_ptr<Head>()>& make) {
  struct Of {
    std::shared_ptr<Head> head;
    std::shared_ptr<Model> target;  // whose ends it uses
  };
  const auto target = host.target_model();
  const std::string key = kind + " head " + options + " of " + std::to_string(target->serial());
  const auto kept = host.keep<Of>(key, [&] { return std::make_shared<Of>(Of{make(), target}); });
  return kept->head;
}

}  // namespace foretoken
