// The composition root: puts devices, models, tokenizers, drafters and verifiers on one table and builds engines from
// runs. What is expensive (a device, a model) is made once and shared by all runs of a process.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "experiments/session/devices.h"
#include "experiments/session/request.h"
#include "framework/engine/engine.h"
#include "framework/model/config.h"
#include "framework/model/division.h"
#include "framework/model/model_choice.h"
#include "framework/model/open_model.h"
#include "framework/model/vocabulary_map.h"
#include "framework/text/tokenizer.h"

namespace foretoken {

enum class Side { baseline, speculative };  // baseline: the same run with the drafter `none`

class Workbench {
 public:
  // Loads plugins named on the command line.
  explicit Workbench(const std::vector<std::string>& plugins = {});
  // With these components alone.
  explicit Workbench(const Registries& registries) : registries_(registries) {}

  // Loads those that a run or the base of a sweep names under "plugins"; their paths may also lie `beside` the
  // document.
  void load_plugins(const nlohmann::json& document, const std::filesystem::path& beside);
  const Registries& registries() const { return registries_; }
  // Of a run's "engine". "cuda" where this program has no CUDA backend is an Error; "auto" takes cpu then.
  Backend& backend(const nlohmann::json& engine);
  // Takes this device for runs whose "engine" names the same device, threads and numerics.
  void put_backend(const nlohmann::json& engine, std::unique_ptr<Backend> backend);
  // Whether nobody has asked for this before: what a device learns once need not be shown to it again.
  bool is_first(const std::string& what) { return asked_for_.insert(what).second; }
  // Of a run's target, which must not be divided. Paths may also lie `beside` the document.
  std::shared_ptr<Model> target(const nlohmann::json& run, const std::filesystem::path& beside);
  // What its target says of itself, before or after it is loaded (but for its weight bytes, before); of a divided one
  // the part of this rank. One that cannot be divided, or needs more devices than there are, is an Error.
  ModelInfo target_info(const nlohmann::json& run, const std::filesystem::path& beside);
  // The same of a model beside the target: its vocabulary is the target's, by as many rows where both have one
  // tokenizer, else by a TranslatedModel.
  ModelInfo info_beside(const ModelInfo& target, const ModelChoice& choice, const nlohmann::json& run,
                        const std::filesystem::path& beside);
  // Whose tokens a model speaks.
  std::shared_ptr<const Tokenizer> tokenizer(const ModelChoice& choice, const std::filesystem::path& beside);
  // The engine of one side of a complete run; it must not outlive this workbench.
  std::unique_ptr<Engine> engine(const nlohmann::json& run, Side side, const std::filesystem::path& beside) {
    return engine(run, side, beside, registries_);
  }
  // The same with other registries than its own.
  std::unique_ptr<Engine> engine(const nlohmann::json& run, Side side, const std::filesystem::path& beside,
                                 const Registries& registries);
  // Lets go of models, and of what components keep, that nothing has asked for since the last call.
  void forget_unused();

 private:
  // The other ranks of divided targets: each has a workbench of its own, used on its thread alone.
  struct Ranks {
    std::shared_ptr<RankThreads> threads;
    std::vector<std::unique_ptr<Workbench>> benches;  // of ranks 1, 2, ...
  };
  Ranks& ranks(int size);
  std::optional<Division> division_of(const nlohmann::json& run);
  OpenModel opened_target(const nlohmann::json& run, const std::filesystem::path& beside);
  std::shared_ptr<Model> own_target(const nlohmann::json& run, const std::filesystem::path& beside);
  std::unique_ptr<Engine> engine_of(const nlohmann::json& run, Side side, const std::filesystem::path& beside,
                                    const Registries& registries, const EngineOptions& options);
  struct Loaded {
    std::shared_ptr<Model> model;
    bool used = true;
  };
  // What tells a model from others, wherever it is asked for.
  static std::string model_key(const Backend& backend, const ModelChoice& choice, const std::filesystem::path& beside);
  std::string target_key(const nlohmann::json& run, const std::filesystem::path& beside);
  // The model that is already there, with so many rows of its head (0: any); or null.
  std::shared_ptr<Model> known(const std::string& key, int vocab = 0);
  std::shared_ptr<Model> load(Backend& backend, const OpenModel& open, const ModelChoice& choice,
                              const std::filesystem::path& beside);
  // `choice` has a cache type of its own; `target`: beside which it is.
  std::shared_ptr<Model> model(Backend& backend, const ModelChoice& choice, const std::filesystem::path& beside,
                               const ModelInfo& target);
  // `choice`: of a component of the run.
  std::shared_ptr<Model> model_beside(const ModelInfo& target, const ModelChoice& choice, const nlohmann::json& run,
                                      const std::filesystem::path& beside);
  // From the tokens of a model to the target's; null where they are the same, or one of them has no tokenizer.
  std::shared_ptr<const VocabularyMap> map_between(const ModelInfo& target, const ModelInfo& own,
                                                   const ModelChoice& choice, const nlohmann::json& run,
                                                   const std::filesystem::path& beside);
  OpenModel opened(const ModelChoice& choice, const std::filesystem::path& beside);
  OpenModel fitted_to(const ModelInfo& target, OpenModel open, const ModelChoice& choice,
                      const std::filesystem::path& beside);
  ModelInfo info_of(Backend& device, const OpenModel& open, const ModelChoice& choice,
                    const std::filesystem::path& beside);
  std::uint64_t vocabulary_of(const ModelChoice& choice, const ModelConfig& config,
                              const std::filesystem::path& beside);
  // MiB of the page pool of a run; a fraction of what is free is measured once for all runs with the same models (again
  // where that is not free any more), so that they have as many pages, and a device that records forwards replays those
  // of one run in the next.
  std::int64_t pool_mib(const nlohmann::json& run, const std::filesystem::path& beside, const Registries& registries);

  Registries registries_;
  std::optional<Rank> rank_;  // of this workbench, where it is another's
  std::map<std::string, std::unique_ptr<Backend>> backends_;
  std::map<std::string, Loaded> models_;
  std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();  // by drafters, policies and verifiers
  std::map<std::string, std::shared_ptr<const Tokenizer>> tokenizers_;
  std::map<std::string, std::shared_ptr<const VocabularyMap>> maps_;
  std::set<std::string> asked_for_;
  std::string asked_;                          // the run whose pool was asked for last
  std::map<std::string, std::int64_t> pools_;  // MiB where a fraction is asked for, by fraction and models
  std::map<int, Ranks> ranks_;                 // by how many; its engines must be gone before it
};

// The target of a complete run, as it names it, with the type of its cache.
ModelChoice target_of(const nlohmann::json& run);
// Another model of that run: its cache is of the target's type unless it has one of its own.
ModelChoice beside_target(ModelChoice choice, const nlohmann::json& run);
// The policy of that run with the paths of its options found. An Error where a file or an object that it names was
// measured with other models than the run's.
nlohmann::json policy_of(const nlohmann::json& run, const Registries& registries, const std::filesystem::path& beside);
// What one side of it is made of, and with what. `memory_mib`: of its page pool.
// With the paths of their options found.
ComponentConfigs configs_of(const nlohmann::json& run, Side side, const Registries& registries,
                            const std::filesystem::path& beside);
EngineOptions options_of(const nlohmann::json& run, std::int64_t memory_mib);
}  // namespace foretoken
