// Names to makers. Registration is a function call, the same for built-ins and plugins; a new drafter or verifier is
// one new file and one line. Options are declared with type, default and meaning, so that unknown ones are refused with
// the nearest known name and `foretoken list` prints them.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/components/drafter.h"
#include "framework/components/length_policy.h"
#include "framework/components/verifier.h"
#include "framework/model/model_choice.h"
#include "framework/text/known_names.h"

namespace foretoken {

class Host;
struct ModelInfo;

struct Option {
  std::string name;
  std::string type;  // "integer", "number", "string", "boolean", "list", "path", "model" (ModelChoice), or "shape",
                     // "dtype" and "kv_dtype": what the model of the option `of` is inflated to, and the types of its
                     // weights and of its cache
  nlohmann::json standard;              // the default; null: must be given unless `optional`
  std::string meaning;                  // with unit and range
  bool optional = false;                // null is a value
  double least = -1e300, most = 1e300;  // of numbers
  std::string of = "";                  // of shapes, dtypes and kv_dtypes: the name of a model option
};

template <class T> struct Entry {
  std::string summary;  // one line
  std::string source;   // the paper, "" where there is none
  std::vector<Option> options;
  std::function<std::unique_ptr<T>(const nlohmann::json& options, Host& host)>
      make;  // options: all of them, defaults filled in; a model holds its shape and types (ModelChoice::read)
  // What it will say of itself, before anything is made or any model is loaded; empty where that depends on more than
  // options and target: then the object is asked (Drafter::needs, LengthPolicy::most, Verifier::soundness).
  std::function<typename T::Traits(const nlohmann::json& options, const ModelInfo& target)> traits = {};
  // Options to test it with, without its name: what is left out has its default, and a required model is one of the
  // conformance kit's. Between them each option of its own has a value that is not its default. Empty: the defaults
  // alone.
  std::vector<nlohmann::json> examples = {};
  std::string plugin = "";  // the file it came from, filled in by load_plugin; "" for what is built in
};

// `config` ({"name": ..., options}) with defaults filled in; an unknown key, a wrong type or range is an Error that
// names `what` ("drafter"), the key, and the known keys.
nlohmann::json fill_options(const std::string& what, const nlohmann::json& config, const std::vector<Option>& options);
// Complete options as Entry::make takes them: every model with its shape and types.
nlohmann::json with_whole_models(const nlohmann::json& config, const std::vector<Option>& options);
// The models that `config` names; options that it lacks are none.
std::vector<ModelChoice> models_of(const nlohmann::json& config, const std::vector<Option>& options);
[[noreturn]] void missing_name(const std::string& what, const nlohmann::json& config,
                               const std::vector<std::string>& known);
[[noreturn]] void taken_name(const std::string& what, const std::string& name, const std::string& plugin);
[[noreturn]] void nothing_made(const std::string& what, const std::string& name, const std::string& plugin);

const ModelInfo& target_of(const Host& host);

template <class T> class Registry {
 public:
  explicit Registry(std::string what) : what_(std::move(what)) {}
  // A name that is taken is an Error.
  void add(const std::string& name, Entry<T> entry) {
    if (const auto it = entries_.find(name); it != entries_.end()) taken_name(what_, name, it->second.plugin);
    entries_[name] = std::move(entry);
  }
  // For recorders and tests that put something between an engine and a component it knows.
  void replace(const std::string& name, Entry<T> entry) { entries_[name] = std::move(entry); }
  const std::map<std::string, Entry<T>>& entries() const { return entries_; }
  const std::string& what() const { return what_; }

  // The entry and the complete options of {"name": NAME, ...}, checked.
  const Entry<T>& find(const nlohmann::json& config) const {
    if (!config.is_object() || !config.contains("name") || !config["name"].is_string())
      missing_name(what_, config, names());
    const auto it = entries_.find(config["name"].get<std::string>());
    if (it == entries_.end()) unknown_name(what_, config["name"].get<std::string>(), names());
    return it->second;
  }
  nlohmann::json complete(const nlohmann::json& config) const {
    return fill_options(what_, config, find(config).options);
  }
  std::unique_ptr<T> make(const nlohmann::json& config, Host& host) const {
    const Entry<T>& entry = find(config);
    std::unique_ptr<T> made = entry.make(with_whole_models(complete(config), entry.options), host);
    if (!made) nothing_made(what_, config["name"].get<std::string>(), entry.plugin);
    if (auto said = traits(config, target_of(host))) made->declared_ = std::move(said);
    return made;
  }
  // What an entry says of the thing before it is made; nothing where the thing itself must be asked.
  std::optional<typename T::Traits> traits(const nlohmann::json& config, const ModelInfo& target) const {
    const Entry<T>& entry = find(config);
    return entry.traits ? std::optional(entry.traits(complete(config), target)) : std::nullopt;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, entry] : entries_) all.push_back(name);
    return all;
  }

 private:
  std::string what_;
  std::map<std::string, Entry<T>> entries_;
};

// A shared library that has been loaded (framework/components/plugin.h).
struct PluginFile {
  std::string path;  // as given
  std::string hash;  // of its bytes
};

struct Registries {
  Registry<Drafter> drafters{"drafter"};
  Registry<LengthPolicy> policies{"policy"};
  Registry<Verifier> verifiers{"verifier"};
  std::vector<PluginFile> plugins;  // in the order of loading
};

// The tables of contents: drafters/drafters.cpp and verifiers/verifiers.cpp.
void register_drafters(Registries& registries);
void register_verifiers(Registries& registries);

}  // namespace foretoken
