#include "framework/components/host.h"

#include <algorithm>

#include "framework/components/registry.h"
#include "kernels/error.h"

namespace foretoken {

const ModelInfo& target_of(const Host& host) { return host.target(); }

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

std::shared_ptr<CachedModel> Host::view_of_target(std::shared_ptr<Model> part) {
  if (!offers_.target_cache)
    throw Error("the cache of the target " + target_.name +
                " is to be viewed, which this engine does not offer; let Entry::traits state Needs::views_target");
  return add(std::make_shared<CachedModel>(backend_, std::move(part), *offers_.target_cache));
}

std::shared_ptr<CachedModel> Host::cache(std::shared_ptr<Model> model) {
  return add(std::make_shared<CachedModel>(backend_, std::move(model), pool_, reuse_prefixes_));
}

std::shared_ptr<CachedModel> Host::add(std::shared_ptr<CachedModel> cache) {
  books_.push_back(cache->books());
  return caches_.emplace_back(std::move(cache));
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

const Registries& Host::registries(const char* what) const {
  if (!offers_.registries) throw Error(std::string("this engine was given no way to make another ") + what);
  return *offers_.registries;
}

std::unique_ptr<Drafter> Host::drafter(const nlohmann::json& config) {
  auto made = registries("drafter").drafters.make(config, *this);
  const Needs needs = made->traits();
  expect_served(needs, "the drafter '" + config["name"].get<std::string>() + "'");
  inner_.ranks = std::max(inner_.ranks, needs.ranks);
  inner_.hidden.insert(inner_.hidden.end(), needs.hidden.begin(), needs.hidden.end());
  return made;
}

std::unique_ptr<LengthPolicy> Host::policy(const nlohmann::json& config) {
  return registries("policy").policies.make(config, *this);
}

std::unique_ptr<Verifier> Host::verifier(const nlohmann::json& config) {
  auto made = registries("verifier").verifiers.make(config, *this);
  inner_.raw |= made->traits().raw;
  return made;
}

std::string Host::on_device(const std::string& key) const {
  return backend_.name() + " " + std::to_string(backend_.serial()) + ": " + key;
}

}  // namespace foretoken
