#include "experiments/session/workbench.h"

#include <algorithm>
#include <utility>

#include "experiments/session/devices.h"
#include "experiments/session/interrupt.h"
#include "experiments/session/measured_pair.h"
#include "experiments/session/run_document.h"
#include "framework/components/plugin.h"
#include "framework/model/head_rows.h"
#include "framework/model/model_files.h"
#include "framework/model/open_model.h"
#include "framework/model/transformer.h"
#include "framework/model/translated_model.h"
#include "framework/text/json_file.h"
#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

// What a step's logits may take: half of what the pool leaves, or as much as the pool where that is all a run says.
std::int64_t logits_mib(const json& engine, std::int64_t pool_mib) {
  const json& fraction = engine.at("memory_fraction");
  if (fraction.is_null()) return pool_mib;
  const double f = fraction;
  return std::max<std::int64_t>(1, std::int64_t(double(pool_mib) * (1 - f) / (2 * f)));
}

// Of another source. After Ctrl-C the next one throws Interrupted, so loading a large model stops.
class InterruptibleTensors : public TensorSource {
 public:
  explicit InterruptibleTensors(const TensorSource& source) : source_(source) {}
  Tensor tensor(const std::string& name, const Shape& expected) const override {
    check_interrupt();
    return source_.tensor(name, expected);
  }
  Weight matrix(const std::string& module, const Shape& expected) const override {
    check_interrupt();
    return source_.matrix(module, expected);
  }
  DType scales() const override { return source_.scales(); }
  std::vector<std::string> names() const override { return source_.names(); }
  std::string where() const override { return source_.where(); }

 private:
  const TensorSource& source_;
};

std::string device_key(const json& engine) {
  return engine.at("device").get<std::string>() + ":" + std::to_string(engine.at("threads").get<int>()) + ":" +
         engine.value("numerics", "fast");
}

}  // namespace

Workbench::Workbench(const std::vector<std::string>& plugins) {
  register_drafters(registries_);
  register_verifiers(registries_);
  for (const auto& path : plugins) load_plugin(path, registries_);
}

void Workbench::load_plugins(const json& document, const std::filesystem::path& beside) {
  for (const std::string& path : plugins_of(document)) load_plugin(locate(path, beside), registries_);
}

Backend& Workbench::backend(const json& engine) {
  auto& made = backends_[device_key(engine)];
  if (!made)
    made = make_backend(engine.at("device"), rank_ ? rank_->number : 0, engine.at("threads"),
                        engine.value("numerics", "fast") == "invariant");
  return *made;
}

void Workbench::put_backend(const json& engine, std::unique_ptr<Backend> backend) {
  backends_[device_key(engine)] = std::move(backend);
}

std::shared_ptr<const Tokenizer> Workbench::tokenizer(const ModelChoice& choice, const std::filesystem::path& beside) {
  const auto path = model_path(choice.tokenizer_directory(), beside);
  auto& loaded = tokenizers_[std::filesystem::weakly_canonical(path).string()];
  if (!loaded) loaded = ModelFiles::open(path)->tokenizer();
  return loaded;
}

std::string Workbench::model_key(const Backend& backend, const ModelChoice& choice,
                                 const std::filesystem::path& beside) {
  const std::string device = std::to_string(reinterpret_cast<std::uintptr_t>(&backend));
  const std::string place =
      choice.directory.empty() ? "" : std::filesystem::weakly_canonical(model_path(choice.directory, beside)).string();
  return choice.text() + "|" + place + "|" + choice.dtype + "|" + choice.head_dtype + "|" + choice.kv_dtype + "|" +
         device;
}

std::string Workbench::target_key(const json& run, const std::filesystem::path& beside) {
  const std::string key = model_key(backend(run.at("engine")), target_of(run), beside);
  return run.contains("parallel") ? key + "|" + run["parallel"].dump() : key;
}

std::shared_ptr<Model> Workbench::known(const std::string& key, int vocab) {
  const auto found = models_.find(key);
  if (found == models_.end() || (vocab > 0 && found->second.model->info().vocab != vocab)) return nullptr;
  found->second.used = true;
  return found->second.model;
}

std::shared_ptr<Model> Workbench::load(Backend& backend, const OpenModel& open, const ModelChoice& choice,
                                       const std::filesystem::path& beside) {
  const InterruptibleTensors tensors(*open.tensors);
  return std::make_shared<Transformer>(backend, open.config, tensors, choice.text(),
                                       vocabulary_of(choice, open.config, beside),
                                       TransformerOptions{open.dtype, choice.head_dtype, choice.kv_dtype});
}

std::shared_ptr<Model> Workbench::model(Backend& backend, const ModelChoice& choice,
                                        const std::filesystem::path& beside, const ModelInfo& target) {
  // With the target's number of rows, where it has stored another.
  const std::string key = model_key(backend, choice, beside),
                    with_rows = key + "|" + std::to_string(target.vocab) + " rows";
  for (const std::string& name : {key, with_rows})
    if (auto made = known(name, target.vocab)) return made;
  OpenModel open = opened(choice, beside);
  const int stored = open.config.vocab;
  open = fitted_to(target, std::move(open), choice, beside);
  auto made = load(backend, open, choice, beside);
  models_[open.config.vocab == stored ? key : with_rows] = {made};
  return made;
}

std::shared_ptr<Model> Workbench::model_beside(const ModelInfo& target, const ModelChoice& choice, const json& run,
                                               const std::filesystem::path& beside) {
  Backend& device = backend(run.at("engine"));
  const ModelChoice own = beside_target(choice, run);
  std::shared_ptr<Model> made = model(device, own, beside, target);
  const auto map = map_between(target, made->info(), own, run, beside);
  if (!map) return made;
  Loaded& read = models_[model_key(device, own, beside) + "|" + std::to_string(target.vocabulary) + "|" +
                         std::to_string(target.vocab) + "|" + target.name];
  if (!read.model) read.model = std::make_shared<TranslatedModel>(device, std::move(made), map, target);
  read.used = true;
  return read.model;
}

std::shared_ptr<const VocabularyMap> Workbench::map_between(const ModelInfo& target, const ModelInfo& own,
                                                            const ModelChoice& choice, const json& run,
                                                            const std::filesystem::path& beside) {
  const ModelChoice of = target_of(run);
  if (own.vocabulary == target.vocabulary || !choice.random.empty() || !of.random.empty()) return nullptr;
  auto& map =
      maps_[std::to_string(target.vocabulary) + "|" + std::to_string(target.vocab) + "|" +
            std::to_string(own.vocabulary) + "|" + std::to_string(own.vocab) + "|" + target.name + "|" + own.name];
  if (!map)
    map = std::make_shared<VocabularyMap>(VocabularyMap::Side{target.name, target.vocab, tokenizer(of, beside)},
                                          VocabularyMap::Side{own.name, own.vocab, tokenizer(choice, beside)});
  return map;
}

OpenModel Workbench::opened(const ModelChoice& choice, const std::filesystem::path& beside) {
  return open_model(
      choice, [&](const std::string& directory) { return model_path(directory, beside); }, check_interrupt);
}

// One tokenizer may be padded to several sizes.
OpenModel Workbench::fitted_to(const ModelInfo& target, OpenModel open, const ModelChoice& choice,
                               const std::filesystem::path& beside) {
  if (open.config.vocab == target.vocab || !choice.random.empty()) return open;
  const auto words = tokenizer(choice, beside);
  const bool fits = words->vocab() <= std::min(open.config.vocab, target.vocab);
  return fits && words->fingerprint() == target.vocabulary ? with_head_rows(std::move(open), target.vocab) : open;
}

OpenModel Workbench::opened_target(const json& run, const std::filesystem::path& beside) {
  const std::optional<Division> division = division_of(run);
  OpenModel open = opened(target_of(run), beside);
  return division ? divided(std::move(open), *division) : open;
}

std::shared_ptr<Model> Workbench::own_target(const json& run, const std::filesystem::path& beside) {
  const std::string key = target_key(run, beside);
  if (auto made = known(key)) return made;
  auto made = load(backend(run.at("engine")), opened_target(run, beside), target_of(run), beside);
  models_[key] = {made};
  return made;
}

std::shared_ptr<Model> Workbench::target(const json& run, const std::filesystem::path& beside) {
  if (run.contains("parallel"))
    throw Error("this runs the target alone, without an engine, on one device; leave out '/parallel'");
  return own_target(run, beside);
}

ModelInfo Workbench::target_info(const json& run, const std::filesystem::path& beside) {
  const auto loaded = models_.find(target_key(run, beside));
  if (loaded != models_.end()) return loaded->second.model->info();
  return info_of(backend(run.at("engine")), opened_target(run, beside), target_of(run), beside);
}

ModelInfo Workbench::info_beside(const ModelInfo& target, const ModelChoice& choice, const json& run,
                                 const std::filesystem::path& beside) {
  const ModelChoice own_choice = beside_target(choice, run);
  const OpenModel open = fitted_to(target, opened(own_choice, beside), own_choice, beside);
  const ModelInfo own = info_of(backend(run.at("engine")), open, own_choice, beside);
  return map_between(target, own, choice, run, beside) ? translated_info(target, own) : own;
}

ModelInfo Workbench::info_of(Backend& device, const OpenModel& open, const ModelChoice& choice,
                             const std::filesystem::path& beside) {
  return model_info(open.config, device, choice.text(), vocabulary_of(choice, open.config, beside), choice.kv_dtype);
}

Workbench::Ranks& Workbench::ranks(int size) {
  Ranks& all = ranks_[size];
  if (all.threads) return all;
  all.threads = std::make_shared<RankThreads>(size);
  for (int r = 1; r < size; ++r) {
    all.benches.push_back(std::make_unique<Workbench>(registries_));
    all.benches.back()->rank_ = Rank{all.threads->group(), r};
  }
  return all;
}

std::optional<Division> Workbench::division_of(const json& run) {
  const Parallel p = parallel_of(run);
  if (p.tensor == 1) return {};
  expect_devices(backend(run.at("engine")), p.tensor);
  return Division{rank_ ? *rank_ : Rank{ranks(p.tensor).threads->group(), 0}, p.expert};
}

std::uint64_t Workbench::vocabulary_of(const ModelChoice& choice, const ModelConfig& config,
                                       const std::filesystem::path& beside) {
  return choice.random.empty() ? tokenizer(choice, beside)->fingerprint() : random_vocabulary(config.vocab);
}

std::int64_t Workbench::pool_mib(const json& run, const std::filesystem::path& beside, const Registries& registries) {
  const json& e = run.at("engine");
  if (e.at("memory_fraction").is_null()) return e.at("memory_mib");
  Backend& device = backend(e);
  // What the models take comes off first, a drafter's and its heads too.
  const ModelInfo target_info = own_target(run, beside)->info();
  std::string key = e.at("memory_fraction").dump() + "|" + target_key(run, beside);
  const ComponentFiles files = component_files(run, registries);
  for (const ModelChoice& named : files.models) {
    const ModelChoice choice = beside_target(named, run);
    model_beside(target_info, choice, run, beside);
    key += "|" + model_key(device, choice, beside);
  }
  for (const std::string& head : files.heads) key += "|" + head;
  std::unique_ptr<Engine> loaded;  // heads, and whatever else a drafter holds: an engine with almost no pages
  if (const std::string asked = run.dump(); std::exchange(asked_, asked) != asked) {
    EngineOptions options = options_of(run, 1);
    options.pages = 1;
    loaded = engine_of(run, Side::speculative, beside, registries, options);
    forget_unused();  // else the pool would be the smaller, the more runs went before, or find no room
  }
  const bool shared = device.device().kind == Device::Kind::cpu;  // by all ranks
  const std::int64_t free = device.free_memory() / (shared ? parallel_of(run).tensor : 1);
  if (free == 0)
    throw Error("the device " + device.name() +
                " does not say how much memory is free; give the engine \"memory_mib\" instead of \"memory_fraction\"");
  std::int64_t& mib = pools_[key];
  if (mib < 1 || mib > free >> 20)
    mib = std::max<std::int64_t>(1, std::int64_t(e.at("memory_fraction").get<double>() * double(free >> 20)));
  return mib;
}

std::unique_ptr<Engine> Workbench::engine(const json& run, Side side, const std::filesystem::path& beside,
                                          const Registries& registries) {
  if (parallel_of(run).tensor > 1) load_all_kernels();
  expect_fit_whole(registries, configs_of(run, side, registries, beside), target_info(run, beside));
  return engine_of(run, side, beside, registries, options_of(run, pool_mib(run, beside, registries)));
}

std::unique_ptr<Engine> Workbench::engine_of(const json& run, Side side, const std::filesystem::path& beside,
                                             const Registries& registries, const EngineOptions& options) {
  const auto make = [&] {
    const std::shared_ptr<Model> own = own_target(run, beside);
    return std::make_unique<Engine>(
        backend(run.at("engine")), own, registries, configs_of(run, side, registries, beside), options,
        [this, run, beside, info = own->info()](const ModelChoice& choice) {
          return model_beside(info, choice, run, beside);
        },
        kept_);
  };
  const int size = parallel_of(run).tensor;
  if (size == 1 || rank_) return make();
  Ranks& all = ranks(size);
  json alike = run;  // no rank chooses a device of another kind
  alike["engine"]["device"] = backend(run.at("engine")).name();
  auto others = std::make_unique<OtherRanks>(all.threads, [&](int rank) {
    return all.benches[std::size_t(rank - 1)]->engine_of(alike, side, beside, registries, options);
  });
  std::unique_ptr<Engine> engine = others->beside([](Engine&) {}, make);
  others->expect_made();
  engine->lead(std::move(others));
  return engine;
}

void Workbench::forget_unused() {
  kept_->forget_unused();
  std::erase_if(models_, [](const auto& entry) { return !entry.second.used; });
  for (auto& [key, loaded] : models_) loaded.used = false;
  for (const auto& [size, all] : ranks_) {
    all.threads->wait();
    for (const auto& bench : all.benches) bench->forget_unused();
  }
}

ModelChoice target_of(const json& run) {
  const json& t = run.at("target");
  ModelChoice choice = ModelChoice::read(t.at("model"), t.at("inflate"), t.at("dtype"));
  choice.kv_dtype = t.at("kv_dtype");
  return choice;
}

ModelChoice beside_target(ModelChoice choice, const json& run) {
  if (choice.kv_dtype == "target") choice.kv_dtype = run.at("target").at("kv_dtype");
  return choice;
}

json policy_of(const json& run, const Registries& registries, const std::filesystem::path& beside) {
  const json policy = registries.policies.with_paths(
      run.at("policy"), [&](const std::string& path) { return locate(path, beside).string(); });
  // What it was measured with, which a policy alone cannot compare.
  for (const std::string& path : registries.policies.files(policy).paths)
    if (has_file(path)) expect_pair(json::parse(read_file(path), nullptr, false), run, path);
  for (const Option& o : registries.policies.find(policy).options)
    if (o.type == "path or object")
      expect_pair(policy.at(o.name), run,
                  "the option '" + o.name + "' of the policy '" + policy.at("name").get<std::string>() + "'");
  return policy;
}

ComponentConfigs configs_of(const json& run, Side side, const Registries& registries,
                            const std::filesystem::path& beside) {
  const auto find = [&](const std::string& path) { return locate(path, beside).string(); };
  const json verifier = registries.verifiers.with_paths(run.at("verifier"), find);
  if (side == Side::baseline) return {{{"name", "none"}}, {{"name", "fixed"}, {"length", 0}}, verifier};
  return {registries.drafters.with_paths(run.at("drafter"), find), policy_of(run, registries, beside), verifier};
}

EngineOptions options_of(const json& run, std::int64_t memory_mib) {
  const json& e = run.at("engine");
  return {.batch = e.at("batch"),
          .step_rows = e.at("step_rows"),
          .page_rows = e.at("page_rows"),
          .memory_mib = memory_mib,
          .logits_mib = logits_mib(e, memory_mib),
          .pages = 0,
          .reuse_prefixes = e.at("reuse_prefixes"),
          .check = e.at("check")};
}

}  // namespace foretoken
