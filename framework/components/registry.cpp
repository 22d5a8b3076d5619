#include "framework/components/registry.h"

#include <algorithm>
#include <utility>

#include "framework/components/host.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

bool is_component(const Option& o) { return o.type == "drafter" || o.type == "policy" || o.type == "verifier"; }

// Visits the configs of components that the value of an option is: their kind, the config, and where it is.
template <class Json, class Visit> void each_component(const Option& o, Json& value, const Visit& visit) {
  if (is_component(o) && value.is_object()) visit(o.type, value, o.name);
  if (o.type != "drafters" || !value.is_array()) return;
  for (std::size_t i = 0; i < value.size(); ++i) visit("drafter", value[i], o.name + "/" + std::to_string(i));
}

bool fits(const nlohmann::json& value, const Option& o) {
  if (value.is_null()) return o.optional;
  if (o.type == "integer")
    return value.is_number_integer() && value.get<double>() >= o.least && value.get<double>() <= o.most;
  if (o.type == "number") return value.is_number() && value.get<double>() >= o.least && value.get<double>() <= o.most;
  if (o.type == "boolean") return value.is_boolean();
  if (o.type == "list") return value.is_array();
  if (o.type == "list or name") return value.is_array() || (value.is_string() && value != "");
  if (o.type == "model") return value.is_object() || (value.is_string() && value != "");
  if (o.type == "path") return value.is_string() && value != "";
  if (o.type == "head" || o.type == "path or object") return value.is_object() || (value.is_string() && value != "");
  if (is_component(o)) return value.is_object();
  if (o.type == "drafters")
    return value.is_array() && std::ranges::all_of(value, [](const nlohmann::json& v) { return v.is_object(); });
  return value.is_string();
}

// What an entry of any kind declares.
struct Declared {
  const std::vector<Option>& options;
  const std::string& plugin;
};

Declared declared(const std::string& kind, const nlohmann::json& config, const Entries& all) {
  const auto of = [&](const auto& entries) -> Declared {
    const auto& entry = find_entry(kind, config, entries);
    return {entry.options, entry.plugin};
  };
  return kind == "drafter" ? of(all.drafters) : kind == "policy" ? of(all.policies) : of(all.verifiers);
}

// The model that the option `o` names, with the parts that other options give.
ModelChoice model_of(const nlohmann::json& config, const Option& o, const std::vector<Option>& options) {
  nlohmann::json shape, dtype = "auto", kv_dtype = "target";
  for (const Option& part : options)
    if (part.of == o.name)
      (part.type == "shape" ? shape : part.type == "dtype" ? dtype : kv_dtype) = config.value(part.name, part.standard);
  return ModelChoice::read(config.at(o.name), shape, dtype, kv_dtype);
}

// Writes a model into its options in one form for equal choices: what an option of its own holds is not in the model's.
void spread(ModelChoice choice, const Option& o, const std::vector<Option>& options, nlohmann::json& config) {
  for (const Option& part : options) {
    if (part.of != o.name) continue;
    if (part.type == "shape")
      config[part.name] = choice.inflate.empty() ? nlohmann::json() : nlohmann::json(std::exchange(choice.inflate, ""));
    else if (part.type == "kv_dtype")
      config[part.name] = std::exchange(choice.kv_dtype, "target");
    else
      config[part.name] = std::exchange(choice.dtype, "auto");
  }
  config[o.name] = choice.document();
}

// The list of what is known is made only for a key that is not.
void expect_known(const std::string& owner, const nlohmann::json& config, const std::vector<Option>& options) {
  for (auto it = config.begin(); it != config.end(); ++it) {
    if (it.key() == "name" || std::ranges::find(options, it.key(), &Option::name) != options.end()) continue;
    std::vector<std::string> known{"name"};
    for (const Option& o : options) known.push_back(o.name);
    expect_option(owner, it.key(), known);
  }
}

// Whether the option that takes its place is given.
bool is_replaced(const Option& o, const nlohmann::json& config) {
  return !o.instead.empty() && config.contains(o.instead) && !config.at(o.instead).is_null();
}

// A part of a model has no meaning where another option takes the model's place.
void expect_parts_of_models(const std::string& owner, const nlohmann::json& filled,
                            const std::vector<Option>& options) {
  for (const Option& o : options)
    for (const Option& part : options)
      if (part.of == o.name && is_replaced(o, filled) && filled.at(part.name) != part.standard)
        throw Error("option '" + part.name + "' of " + owner + " is of its '" + o.name + "', whose place '" +
                    o.instead + "' takes; leave it out");
}

// Completes the components that the value of the option `o` is.
void complete_components(const std::string& owner, const Option& o, nlohmann::json& value, const Entries& all) {
  each_component(o, value, [&](const std::string& kind, nlohmann::json& config, const std::string& at) {
    try {
      if (o.model_alone) expect_model_alone(config, all);
      config = fill_options(kind, config, declared(kind, config, all).options, all);
    } catch (const Error& e) {
      throw Error("option '" + at + "' of " + owner + ": " + e.what());
    }
  });
}

// Of a head also those within its object: its directory, and a shape that is one.
template <class Json, class Visit> void each_path(const Option& o, Json& value, const Visit& visit) {
  if (!o.type.starts_with("path") && o.type != "head") return;
  if (value.is_string()) visit(value);
  if (o.type != "head" || !value.is_object()) return;
  for (auto& [key, part] : value.items())
    if (part.is_string() &&
        (key == "directory" || (key == "inflate" && part.template get<std::string>().find('/') != std::string::npos)))
      visit(part);
}

void add_files(const std::string& what, const nlohmann::json& config, const Entries& all, ComponentFiles& files) {
  const auto [options, plugin] = declared(what, config, all);
  files.plugins.insert(plugin);
  for (ModelChoice& choice : models_of(config, options)) files.models.push_back(std::move(choice));
  for (const Option& o : options) {
    const nlohmann::json value = config.value(o.name, nlohmann::json());
    each_path(o, value, [&](const nlohmann::json& path) { files.paths.push_back(path); });
    if (o.type == "head" && !value.is_null())
      files.heads.push_back(value.dump() + " " + config.value("dtype", nlohmann::json()).dump());
    each_component(o, value, [&](const std::string& kind, const nlohmann::json& part, const std::string&) {
      add_files(kind, part, all, files);
    });
  }
}

// Visits every component that the options of a complete config name: its entry and its config.
template <class Visit> void each_part(const nlohmann::json& config, const std::vector<Option>& options,
                                      const Entries& all, const Visit& visit) {
  for (const Option& o : options)
    each_component(o, config.at(o.name), [&](const std::string& kind, const nlohmann::json& part, const std::string&) {
      if (kind == "drafter")
        visit(find_entry(kind, part, all.drafters), part);
      else if (kind == "policy")
        visit(find_entry(kind, part, all.policies), part);
      else
        visit(find_entry(kind, part, all.verifiers), part);
    });
}

// The same, and the components that their options name, however deep.
template <class Visit> void each_part_within(const nlohmann::json& config, const std::vector<Option>& options,
                                             const Entries& all, const Visit& visit) {
  each_part(config, options, all, [&](const auto& entry, const nlohmann::json& part) {
    visit(entry, part);
    each_part_within(part, entry.options, all, visit);
  });
}

// What an entry states; of hidden states each once.
template <class T>
typename T::Traits stated(const Entry<T>& entry, const nlohmann::json& config, const ModelInfo& target) {
  typename T::Traits traits = entry.traits(config, target);
  if constexpr (std::is_same_v<T, Drafter>) {
    expect_served(traits, "the drafter '" + config.at("name").template get<std::string>() + "'");
    std::vector<Tap> once;
    for (const Tap t : traits.hidden)
      if (std::ranges::find(once, t) == once.end()) once.push_back(t);
    traits.hidden = std::move(once);
  }
  return traits;
}

// Adds to the traits of a component what one that it is made of needs.
void include(Needs& own, const Needs& part) {
  own.learns |= part.learns, own.views_target |= part.views_target, own.waits |= part.waits;
  own.page_bounds |= part.page_bounds;
  own.ranks = std::max(own.ranks, part.ranks);
  for (const Tap t : part.hidden)
    if (std::ranges::find(own.hidden, t) == own.hidden.end()) own.hidden.push_back(t);
}
// Verifiers within a drafter, however deep, judge tokens of one path.
void include(Needs& own, const Soundness& part) {
  if (own.races && *own.races != part.race)
    throw Error(
        "of the verifiers inside a drafter one draws races, named by position, and another does not, so that tokens of "
        "one draft would be drawn in two ways; choose both of one kind");
  own.races = part.race;
}
void include(Soundness& own, const Soundness& part) { own.raw |= part.raw; }
// What the engine gives to drafters it gives to none within a policy or a verifier.
template <class Own> void include(Own& own, const Needs& part) {
  if (part.ranks > 0 || !part.hidden.empty() || part.views_target)
    throw Error(
        "a drafter within a policy or a verifier asks for ranks, hidden states or a view of the target's cache, which "
        "an engine gives to its drafter alone; choose another inner drafter");
  if constexpr (requires { own.learns | part.learns; }) own.learns |= part.learns;
}
template <class Own, class Part> void include(Own& own, const Part& part) {
  if constexpr (requires { own.learns | part.learns; }) own.learns |= part.learns;
}

bool names_a_model(const nlohmann::json& config, const Option& o) {
  return o.type == "model" && config.contains(o.name) && !config.at(o.name).is_null();
}

}  // namespace

void missing_name(const std::string& what, const nlohmann::json& config, const std::vector<std::string>& known) {
  throw Error("a " + what + " needs a name, as in {\"name\": \"" + (known.empty() ? "NAME" : known.front()) +
              "\"}, not " + shown(config) + "; known: " + listed(known));
}

void taken_name(const std::string& what, const std::string& name, const std::string& plugin) {
  throw Error("there is a " + what + " '" + name + "' already (" + (plugin.empty() ? "built in" : "from " + plugin) +
              "); register yours under another name");
}

void expect_model_alone(const nlohmann::json& config, const Entries& all) {
  const Entry<Drafter>& entry = find_entry("drafter", config, all.drafters);
  const std::string who = "the drafter '" + config.at("name").get<std::string>() + "'";
  if (!entry.model) {
    std::vector<std::string> offer;
    for (const auto& [name, other] : all.drafters)
      if (other.model) offer.push_back(name);
    throw Error(who + " offers no model to other drafters; choose one of: " + listed(offer));
  }
  for (const Option& o : entry.options)
    if (o.of_trees && config.contains(o.name) && config.at(o.name) != o.standard)
      throw Error("'" + o.name + "' says how " + who +
                  " draws trees, but its model is used here without them; leave it "
                  "out");
}

void no_traits(const std::string& what, const std::string& name) {
  throw Error("the " + what + " '" + name +
              "' states no traits, which an engine must know before it is made; fill Entry::traits");
}

void nothing_made(const std::string& what, const std::string& name, const std::string& plugin) {
  throw Error("the " + what + " '" + name + "'" + (plugin.empty() ? "" : " of the plugin " + plugin) +
              " was not made: its Entry::make returned null; let it return an object, or throw foretoken::Error");
}

template <class T> typename T::Traits united_traits(const Entry<T>& entry, const nlohmann::json& config,
                                                    const ModelInfo& target, const Entries& all) {
  typename T::Traits traits = stated(entry, config, target);
  each_part_within(config, entry.options, all,
                   [&](const auto& of, const nlohmann::json& part) { include(traits, stated(of, part, target)); });
  if (!entry.unite) return traits;
  std::vector<typename T::Traits> parts;
  each_part(config, entry.options, all, [&](const auto& of, const nlohmann::json& part) {
    if constexpr (std::is_same_v<decltype(of), const Entry<T>&>) parts.push_back(united_traits(of, part, target, all));
  });
  entry.unite(traits, parts, config);
  return traits;
}
template Needs united_traits(const Entry<Drafter>&, const nlohmann::json&, const ModelInfo&, const Entries&);
template PolicyTraits united_traits(const Entry<LengthPolicy>&, const nlohmann::json&, const ModelInfo&,
                                    const Entries&);
template Soundness united_traits(const Entry<Verifier>&, const nlohmann::json&, const ModelInfo&, const Entries&);

std::shared_ptr<void> allow_parts(Host& host, const nlohmann::json& config, const std::vector<Option>& options,
                                  const Entries& all) {
  std::set<std::string> named;
  each_part_within(config, options, all, [&](const auto&, const nlohmann::json& part) { named.insert(part.dump()); });
  const auto before = std::make_shared<std::set<std::string>>(host.allow_parts(std::move(named)));
  return {nullptr, [&host, before](void*) { (void)host.allow_parts(std::move(*before)); }};
}

nlohmann::json fill_options(const std::string& what, const nlohmann::json& config, const std::vector<Option>& options,
                            const Entries& all) {
  const std::string owner = what + " '" + config.value("name", "") + "'";
  expect_known(owner, config, options);
  nlohmann::json filled{{"name", config.at("name")}};
  for (const auto& o : options) {
    const auto given = config.find(o.name);
    nlohmann::json& value = filled[o.name] = given != config.end() ? *given : o.standard;
    if (fits(value, o)) {
      if (!value.is_null() && is_replaced(o, config))
        throw Error(owner + " has the options '" + o.name + "' and '" + o.instead +
                    "', of which one takes the other's place; leave one of them out");
      complete_components(owner, o, value, all);
      continue;
    }
    if (value.is_null() && is_replaced(o, config)) continue;
    if (given == config.end())
      throw Error(owner + " needs the option '" + o.name + "'" +
                  (o.instead.empty() ? "" : " or '" + o.instead + "' in its place") + " (" + o.type + ": " + o.meaning +
                  ")");
    throw Error("option '" + o.name + "' of " + owner + " must be " + o.type + " (" + o.meaning + "), not " +
                shown(value));
  }
  expect_parts_of_models(owner, filled, options);
  try {
    for (const auto& o : options)
      if (names_a_model(filled, o)) spread(model_of(filled, o, options), o, options, filled);
  } catch (const Error& e) {
    throw Error(owner + ": " + e.what());
  }
  return filled;
}

nlohmann::json with_whole_models(const nlohmann::json& config, const std::vector<Option>& options) {
  nlohmann::json whole = config;
  for (const auto& o : options)
    if (names_a_model(config, o)) whole[o.name] = model_of(config, o, options).document();
  return whole;
}

std::vector<ModelChoice> models_of(const nlohmann::json& config, const std::vector<Option>& options) {
  std::vector<ModelChoice> all;
  for (const auto& o : options)
    if (names_a_model(config, o)) all.push_back(model_of(config, o, options));
  return all;
}

nlohmann::json with_paths(const std::string& what, nlohmann::json config, const Entries& all,
                          const std::function<std::string(const std::string&)>& find) {
  for (const Option& o : declared(what, config, all).options) {
    nlohmann::json& value = config[o.name];
    each_path(o, value, [&](nlohmann::json& path) { path = find(path.get<std::string>()); });
    each_component(o, value, [&](const std::string& kind, nlohmann::json& part, const std::string&) {
      part = with_paths(kind, part, all, find);
    });
  }
  return config;
}

ComponentFiles files_of(const std::string& what, const nlohmann::json& config, const Entries& all) {
  ComponentFiles files;
  add_files(what, config, all, files);
  return files;
}

}  // namespace foretoken
