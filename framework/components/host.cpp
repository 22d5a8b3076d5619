#include "framework/components/host.h"

#include <algorithm>

#include "framework/components/registry.h"
#include "kernels/error.h"

namespace foretoken {

Host::Host(Backend& backend, PagePool& pool, const ModelInfo& target, Load load, bool reuse_prefixes, Offers offers)
    : backend_(backend),
      pool_(pool),
      target_(target),
      load_(std::move(load)),
      reuse_prefixes_(reuse_prefixes),
      offers_(std::move(offers)) {
  if (!offers_.kept) offers_.kept = std::make_shared<Kept>();
}

std::shared_ptr<Model> Host::target_model() const {
  if (!offers_.target) throw Error("this engine does not offer its target, " + target_.name + ", to drafters");
  return offers_.target;
}

const Ends& Host::ends() const {
  const std::shared_ptr<Model> target = target_model();
  if (const Ends* ends = target->ends(backend_)) return *ends;
  throw Error("the target " + target_.name +
              " has no embedding, last norm and head that a drafter could use (Host::ends); choose another drafter");
}

std::shared_ptr<Model> Host::load(const ModelChoice& choice) const {
  if (!load_) throw Error("this engine was given no way to load the model '" + choice.text() + "'");
  auto model = load_(choice);
  const ModelInfo& m = model->info();
  if (m.vocab != target_.vocab || m.vocabulary != target_.vocabulary)
    throw Error("the draft model " + m.name + " has another vocabulary (" + std::to_string(m.vocab) +
                " tokens) than the target " + target_.name + " (" + std::to_string(target_.vocab) +
                " tokens): token ids would not mean the same; use a draft model with the target's tokenizer");
  return model;
}

std::shared_ptr<CachedModel> Host::view_of_target(std::shared_ptr<Model> part, PageChoice chosen) {
  if (!offers_.target_cache)
    throw Error("the cache of the target " + target_.name +
                " is to be viewed, which this engine does not offer; let Entry::traits state Needs::views_target");
  if (chosen.selects) expect_bounds(offers_.target_cache->layers().front());
  return add(std::make_shared<CachedModel>(backend_, std::move(part), *offers_.target_cache, std::move(chosen)));
}

std::shared_ptr<CachedModel> Host::cache(std::shared_ptr<Model> model) {
  return add(std::make_shared<CachedModel>(backend_, std::move(model), pool_, reuse_prefixes_));
}

std::shared_ptr<CachedModel> Host::add(std::shared_ptr<CachedModel> cache) {
  books_.push_back(cache->books());
  return caches_.emplace_back(std::move(cache));
}

std::string Host::notice() const {
  std::string all;
  for (const auto& c : caches_)
    if (const VocabularyMap* map = c->model()->vocabulary_map(); map && all.find(map->summary()) == all.npos)
      all += (all.empty() ? "" : "; ") + map->summary();
  return all.empty() ? all : all + ", and drafts no others";
}

std::shared_ptr<ForwardBooks> Host::books(std::shared_ptr<ForwardMemory> memory, const UsedWeights& weights) {
  return books_.emplace_back(std::make_shared<ForwardBooks>(backend_, std::move(memory), weights));
}

void Host::expect_forgotten(const Sequence& sequence, const std::string& who) const {
  for (const auto& c : caches_)
    if (c->cache().knows(sequence.id))
      throw Error(who + " was to forget sequence " + std::to_string(sequence.id) +
                  ", and left its rows in the cache of the model " + c->info().name +
                  "; let Drafter::forget call CachedModel::forget for every cache that it got from its host");
}

namespace {

bool asks_nothing(const Needs& n) {
  return n.ranks == 0 && n.hidden.empty() && !n.views_target && !n.page_bounds && !n.learns && !n.waits;
}
bool asks_nothing(const PolicyTraits& policy) { return !policy.learns; }
bool asks_nothing(const Soundness& soundness) { return !soundness.raw; }

}  // namespace

template <class T>
const Registry<T>& Host::allowed(Registry<T> Registries::* kind, const char* what, const nlohmann::json& config) const {
  if (!offers_.registries) throw Error(std::string("this engine was given no way to make another ") + what);
  const Registry<T>& registry = offers_.registries->*kind;
  if (!asks_nothing(registry.traits(config, target_)) && !parts_.contains(registry.complete(config).dump()))
    throw Error("the " + registry.what() + " '" + config["name"].get<std::string>() +
                "' is part of another component, and its Entry::traits asks the engine for something; let an option " +
                "of the type \"" + registry.what() + "\" name it, so that the engine serves it");
  return registry;
}

std::unique_ptr<Drafter> Host::drafter(const nlohmann::json& config) {
  return allowed(&Registries::drafters, "drafter", config).make(config, *this);
}
OwnModel Host::own_model(const nlohmann::json& drafter) {
  return allowed(&Registries::drafters, "drafter", drafter).model(drafter, *this);
}
std::unique_ptr<LengthPolicy> Host::policy(const nlohmann::json& config) {
  return allowed(&Registries::policies, "policy", config).make(config, *this);
}
std::unique_ptr<Verifier> Host::verifier(const nlohmann::json& config) {
  return allowed(&Registries::verifiers, "verifier", config).make(config, *this);
}

Needs Host::needs_of(const nlohmann::json& drafter) const {
  if (!offers_.registries) throw Error("this engine was given no way to know the traits of another drafter");
  return offers_.registries->drafters.traits(drafter, target_);
}

Soundness Host::soundness_of(const nlohmann::json& verifier) const {
  if (!offers_.registries) throw Error("this engine was given no way to know the traits of another verifier");
  return offers_.registries->verifiers.traits(verifier, target_);
}

std::string Host::on_device(const std::string& key) const {
  return backend_.name() + " " + std::to_string(backend_.serial()) + ": " + key;
}

}  // namespace foretoken
