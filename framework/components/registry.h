// Names to makers. Registration is a function call, the same for built-ins and plugins; a new drafter or verifier is
// one new file and one line. Options are declared with type, default and meaning, so that unknown ones are refused with
// the nearest known name and `foretoken list` prints them.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/components/drafter.h"
#include "framework/components/length_policy.h"
#include "framework/components/own_model.h"
#include "framework/components/verifier.h"
#include "framework/model/model_choice.h"
#include "framework/text/known_names.h"

namespace foretoken {

class Host;
struct ModelInfo;

struct Option {
  std::string name;
  // "integer", "number", "string", "boolean", "list", "list or name" (of a list), "path", "path or object" and "head"
  // (a directory; or an object that the drafter reads), "model" (ModelChoice); or "shape", "dtype" and "kv_dtype": what
  // the model of the option `of` is inflated to, and the types of its weights and of its cache; or "drafter", "policy"
  // and "verifier": a component of its own, {"name": NAME, options}, checked and completed as one is, for
  // Host::drafter and the like; or "drafters": a list of drafters
  std::string type;
  nlohmann::json standard;              // the default; null: must be given unless `optional`
  std::string meaning;                  // with unit and range
  bool optional = false;                // null is a value
  double least = -1e300, most = 1e300;  // of numbers
  std::string of = "";                  // of shapes, dtypes and kv_dtypes: the name of a model option
  // Of one that must be given: the name of an optional one that takes its place. Exactly one of the two is given.
  std::string instead = "";
  bool model_alone = false;  // of a drafter: its model is used (Entry::model), and none of its trees
  bool of_trees = false;     // says how trees are drawn, so it has no meaning where the model is used alone
};

template <class T> struct Entry {
  std::string summary;  // one line
  std::string source;   // the paper, "" where there is none
  std::vector<Option> options;
  std::function<std::unique_ptr<T>(const nlohmann::json& options, Host& host)>
      make;  // options: all of them, defaults filled in; a model holds its shape and types (ModelChoice::read)
  // What it states of itself, before anything is made or any model is loaded. Of one that is made of others, without
  // what those need: Registry::traits adds that, and `unite` what follows from them besides. Never empty.
  std::function<typename T::Traits(const nlohmann::json& options, const ModelInfo& target)> traits;
  // Options to test it with, without its name: what is left out has its default, and a required model is one of the
  // conformance kit's. Between them each option of its own has a value that is not its default. Empty: the defaults
  // alone.
  std::vector<nlohmann::json> examples = {};
  std::string plugin = "";  // the file it came from, filled in by load_plugin; "" for what is built in
  // Of a drafter that passes on what drafters draw, and the like: what it proposes, serves and asks for, in `own`, from
  // the traits of the parts of its kind that its options name, in order. An Error where it cannot be made of these.
  std::function<void(typename T::Traits& own, std::span<const typename T::Traits> parts, const nlohmann::json& options)>
      unite = {};
  // Of a drafter: its model, for a drafter that has an option with Option::model_alone. Empty: it offers none.
  std::function<OwnModel(const nlohmann::json& options, Host& host)> model = {};
};

// Everything that is registered, by kind and name.
struct Entries {
  std::map<std::string, Entry<Drafter>> drafters;
  std::map<std::string, Entry<LengthPolicy>> policies;
  std::map<std::string, Entry<Verifier>> verifiers;

  template <class T> std::map<std::string, Entry<T>>& of() {
    if constexpr (std::is_same_v<T, Drafter>)
      return drafters;
    else if constexpr (std::is_same_v<T, LengthPolicy>)
      return policies;
    else
      return verifiers;
  }
};

// `config` ({"name": ..., options}) with defaults filled in, as are the configs of components among its options; an
// unknown key, a wrong type or range is an Error that names `what` ("drafter"), the key, and the known keys.
nlohmann::json fill_options(const std::string& what, const nlohmann::json& config, const std::vector<Option>& options,
                            const Entries& all = {});
// Complete options as Entry::make takes them: every model with its shape and types.
nlohmann::json with_whole_models(const nlohmann::json& config, const std::vector<Option>& options);
// The models that `config` names; options that it lacks are none.
std::vector<ModelChoice> models_of(const nlohmann::json& config, const std::vector<Option>& options);
// What a component reads and where it comes from, with all components that its options name.
struct ComponentFiles {
  std::vector<ModelChoice> models;
  std::vector<std::string> heads;  // what options of the type "head" name, with the type of its weights
  std::vector<std::string> paths;  // that options of the types "path", "path or object" and "head" name
  std::set<std::string> plugins;   // their files; "": built in
};
ComponentFiles files_of(const std::string& what, const nlohmann::json& config, const Entries& all);
// Complete options with every path replaced by find(path), in all components that they name too.
nlohmann::json with_paths(const std::string& what, nlohmann::json config, const Entries& all,
                          const std::function<std::string(const std::string&)>& find);
[[noreturn]] void missing_name(const std::string& what, const nlohmann::json& config,
                               const std::vector<std::string>& known);
[[noreturn]] void taken_name(const std::string& what, const std::string& name, const std::string& plugin);
[[noreturn]] void no_traits(const std::string& what, const std::string& name);
// Throws Error unless a drafter of this config offers its model, and the config says nothing of trees.
void expect_model_alone(const nlohmann::json& config, const Entries& all);
[[noreturn]] void nothing_made(const std::string& what, const std::string& name, const std::string& plugin);

// The entry of {"name": NAME, ...}; an Error where there is none.
template <class T> const Entry<T>& find_entry(const std::string& what, const nlohmann::json& config,
                                              const std::map<std::string, Entry<T>>& entries) {
  std::vector<std::string> known;
  for (const auto& [name, entry] : entries) known.push_back(name);
  if (!config.is_object() || !config.contains("name") || !config["name"].is_string()) missing_name(what, config, known);
  const auto it = entries.find(config["name"].get<std::string>());
  if (it == entries.end()) unknown_name(what, config["name"].get<std::string>(), known);
  return it->second;
}

// Of the complete `config`: what its entry states, and what the components that its options name need besides, however
// deep: ranks, hidden states, views, waits, raw distributions, learning, and what Entry::unite adds.
template <class T> typename T::Traits united_traits(const Entry<T>& entry, const nlohmann::json& config,
                                                    const ModelInfo& target, const Entries& all);
// Tells a host, as long as what is returned lives, which components `config`, which is complete, names by its options.
std::shared_ptr<void> allow_parts(Host& host, const nlohmann::json& config, const std::vector<Option>& options,
                                  const Entries& all);

// One kind of what is registered; the others are looked up where an option names a component.
template <class T> class Registry {
 public:
  Registry(std::string what, std::shared_ptr<Entries> all) : what_(std::move(what)), all_(std::move(all)) {}
  // A copy has entries of its own.
  Registry(const Registry& other) : what_(other.what_), all_(std::make_shared<Entries>(*other.all_)) {}
  Registry& operator=(const Registry&) = delete;  // Registries is assigned as a whole
  // A name that is taken is an Error, and so is an entry without traits.
  void add(const std::string& name, Entry<T> entry) {
    if (const auto it = entries().find(name); it != entries().end()) taken_name(what_, name, it->second.plugin);
    replace(name, std::move(entry));
  }
  // For recorders and tests that put something between an engine and a component it knows.
  void replace(const std::string& name, Entry<T> entry) {
    if (!entry.traits) no_traits(what_, name);
    all_->of<T>()[name] = std::move(entry);
  }
  const std::map<std::string, Entry<T>>& entries() const { return all_->of<T>(); }
  const std::string& what() const { return what_; }

  // The entry and the complete options of {"name": NAME, ...}, checked.
  const Entry<T>& find(const nlohmann::json& config) const { return find_entry(what_, config, entries()); }
  nlohmann::json complete(const nlohmann::json& config) const {
    return fill_options(what_, config, find(config).options, *all_);
  }
  ComponentFiles files(const nlohmann::json& config) const { return files_of(what_, config, *all_); }
  nlohmann::json with_paths(const nlohmann::json& config,
                            const std::function<std::string(const std::string&)>& find) const {
    return foretoken::with_paths(what_, complete(config), *all_, find);
  }
  std::unique_ptr<T> make(const nlohmann::json& config, Host& host) const {
    std::unique_ptr<T> made = made_by(&Entry<T>::make, config, host);
    if (!made) nothing_made(what_, config["name"].get<std::string>(), find(config).plugin);
    return made;
  }
  // Of a drafter: what Entry::model makes; an Error where it offers none.
  OwnModel model(const nlohmann::json& config, Host& host) const {
    expect_model_alone(config, *all_);
    OwnModel made = made_by(&Entry<T>::model, config, host);
    if (!made.model) nothing_made(what_, config["name"].get<std::string>(), find(config).plugin);
    return made;
  }
  // The traits of what `config` makes: its own, and what the components that its options name need. Needs that nothing
  // serves are an Error.
  typename T::Traits traits(const nlohmann::json& config, const ModelInfo& target) const {
    return united_traits(find(config), complete(config), target, *all_);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, entry] : entries()) all.push_back(name);
    return all;
  }

 private:
  template <class Maker> auto made_by(Maker Entry<T>::* maker, const nlohmann::json& config, Host& host) const {
    const Entry<T>& entry = find(config);
    const nlohmann::json whole = complete(config);
    const std::shared_ptr<void> named = allow_parts(host, whole, entry.options, *all_);
    return (entry.*maker)(with_whole_models(whole, entry.options), host);
  }

  std::string what_;
  std::shared_ptr<Entries> all_;  // those of Registries
};

// A shared library that has been loaded (framework/components/plugin.h).
struct PluginFile {
  std::string path;  // as given
  std::string hash;  // of its bytes
};

class Registries {
 public:
  Registries() = default;
  Registries(const Registries& other) : all_(std::make_shared<Entries>(*other.all_)), plugins(other.plugins) {}
  Registries& operator=(const Registries& other) {
    *all_ = Entries(*other.all_), plugins = other.plugins;
    return *this;
  }

 private:
  std::shared_ptr<Entries> all_ = std::make_shared<Entries>();

 public:
  Registry<Drafter> drafters{"drafter", all_};
  Registry<LengthPolicy> policies{"policy", all_};
  Registry<Verifier> verifiers{"verifier", all_};
  std::vector<PluginFile> plugins{};  // in the order of loading
};

// The tables of contents: drafters/drafters.cpp and verifiers/verifiers.cpp.
void register_drafters(Registries& registries);
void register_verifiers(Registries& registries);

}  // namespace foretoken
