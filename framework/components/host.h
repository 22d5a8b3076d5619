// What a drafter, policy or verifier may ask of the engine when it is made: the device, facts about the target and the
// target itself, models (loaded once, shared), caches over the engine's one page pool, other drafters and verifiers,
// and things that outlive the engine.
#pragma once
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "framework/cache/cached_model.h"
#include "framework/components/kept.h"
#include "framework/model/model_choice.h"

namespace foretoken {

class Drafter;
class LengthPolicy;
class Verifier;
struct Needs;
struct OwnModel;
struct Soundness;
class Registries;
template <class T> class Registry;

class Host {
 public:
  using Load = std::function<std::shared_ptr<Model>(const ModelChoice& choice)>;
  // What an engine offers besides. What is absent is refused where it is asked for; `kept` is then the host's own.
  struct Offers {
    std::shared_ptr<Model> target = {};
    KvCache* target_cache = nullptr;  // where Needs::views_target of a drafter says that it is viewed
    const Registries* registries = nullptr;
    std::shared_ptr<Kept> kept = {};
  };

  Host(Backend& backend, PagePool& pool, const ModelInfo& target, Load load, bool reuse_prefixes, Offers offers);
  // Without offers. An overload: GCC takes no default argument of a nested class with member initializers.
  Host(Backend& backend, PagePool& pool, const ModelInfo& target, Load load, bool reuse_prefixes)
      : Host(backend, pool, target, std::move(load), reuse_prefixes, Offers{}) {}

  Backend& backend() const { return backend_; }
  const ModelInfo& target() const { return target_; }
  // The target itself, for a drafter that runs it, or a part of it, with a cache of its own.
  std::shared_ptr<Model> target_model() const;
  // Of the target. An Error where this engine does not offer it, or where it has none.
  const Ends& ends() const;
  // The model that an option of the type "model" names: host.load(ModelChoice::read(options.at("model"))). One of
  // another vocabulary comes as a TranslatedModel, whose logits are those of the target's tokens; where one of the two
  // has no tokenizer it is an Error.
  std::shared_ptr<Model> load(const ModelChoice& choice) const;
  // A cache for it over the shared pool, owned by the engine's books (time in forwards is counted as drafting).
  std::shared_ptr<CachedModel> cache(std::shared_ptr<Model> model);
  // A part of the target that views the target's cache (KvCache, part_of): it reads the confirmed rows and drafts
  // behind them, with nothing to read itself. Needs::views_target must state it. `chosen`: of a view of fewer pages.
  std::shared_ptr<CachedModel> view_of_target(std::shared_ptr<Model> part, PageChoice chosen = {});
  KvCache* target_cache() const { return offers_.target_cache; }  // null: not offered
  std::span<const std::shared_ptr<CachedModel>> caches() const { return caches_; }
  // What Drafter::notice() is for, of the models: how much of another vocabulary is the target's.
  std::string notice() const;
  // Books for forwards without a cache, as the engine keeps them for caches: their time is counted as drafting, and
  // their weights and memory as the draft's.
  std::shared_ptr<ForwardBooks> books(std::shared_ptr<ForwardMemory> memory, const UsedWeights& weights);
  // Of all caches and of such forwards.
  std::span<const std::shared_ptr<ForwardBooks>> books() const { return books_; }
  // After the drafter `who` was told to forget a sequence: an Error where one of these caches holds rows of it. They
  // would be missing for good: no sequence would be blamed, and the pool would seem too small.
  void expect_forgotten(const Sequence& sequence, const std::string& who) const;
  // Another drafter, policy or verifier, {"name": ..., options}, for one that is made of several: the value of an
  // option of the type "drafter", "policy" or "verifier", so that Registry::traits can add what it needs to the outer
  // one's traits. One that no option names is an Error if it needs anything. An inner drafter or verifier gets requests
  // and trials whose draws have a scope of their own (Draws::within); an outer policy gives no budget above its own
  // largest. Who makes the trials of an inner verifier gives it what it reads (Soundness::raw).
  std::unique_ptr<Drafter> drafter(const nlohmann::json& config);
  OwnModel own_model(const nlohmann::json& drafter);  // Entry::model, of an option with Option::model_alone
  std::unique_ptr<LengthPolicy> policy(const nlohmann::json& config);
  std::unique_ptr<Verifier> verifier(const nlohmann::json& config);
  Needs needs_of(const nlohmann::json& drafter) const;  // its traits (Registry::traits)
  Soundness soundness_of(const nlohmann::json& verifier) const;
  // By Registry::make: the complete configs that options of the component name which is made now, however deep, in the
  // place of those before, which are returned.
  std::set<std::string> allow_parts(std::set<std::string> named) { return std::exchange(parts_, std::move(named)); }
  // What `make` (returns a std::unique_ptr or std::shared_ptr of a T) made for `key` when it was first asked for on
  // this device: shared by all engines of a sweep. The key names all that the thing depends on.
  template <class T>
  std::shared_ptr<const T> keep(const std::string& key, const std::function<std::shared_ptr<const T>()>& make) {
    return std::static_pointer_cast<const T>(offers_.kept->find(on_device(key), typeid(T), make));
  }

 private:
  std::shared_ptr<CachedModel> add(std::shared_ptr<CachedModel> cache);
  template <class T>
  const Registry<T>& allowed(Registry<T> Registries::* kind, const char* what, const nlohmann::json& config) const;
  std::string on_device(const std::string& key) const;

  Backend& backend_;
  PagePool& pool_;
  const ModelInfo& target_;
  Load load_;
  bool reuse_prefixes_;
  Offers offers_;
  std::set<std::string> parts_;  // complete configs that options of the component name which is made now
  std::vector<std::shared_ptr<CachedModel>> caches_;
  std::vector<std::shared_ptr<ForwardBooks>> books_;
};

}  // namespace foretoken
