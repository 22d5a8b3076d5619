#include "experiments/conformance/configurations.h"

#include <algorithm>
#include <array>

#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

using nlohmann::json;

// The models that required options name in turn. "table:same" is left to the laws that ask for it.
constexpr std::array kTables = {"table:other", "table:far", "table:uniform"};

bool must_be_given(const Option& o) { return o.standard.is_null() && !o.optional; }

// Why only a user can configure an entry; empty if the kit or its examples can.
template <class T> std::string needs_a_user(const Registry<T>& registry, const std::string& name) {
  const Entry<T>& entry = registry.find({{"name", name}});
  const auto in_examples = [&](const Option& o) {
    return !entry.examples.empty() &&
           std::ranges::all_of(entry.examples, [&](const json& example) { return example.contains(o.name); });
  };
  for (const Option& o : entry.options)
    if (must_be_given(o) && o.type != "model" && !in_examples(o))
      return "the " + registry.what() + " '" + name + "' needs the option '" + o.name + "' (" + o.type + ": " +
             o.meaning + "); give it beside the name, as --" + registry.what() + " '{\"name\": \"" + name + "\", \"" +
             o.name + "\": ...}'";
  return "";
}

// Table models for the required models that are missing, of inner drafters too: the n-th one, then the next.
template <class T> void add_tables(const Registry<T>& registry, json& config, std::size_t& n) {
  for (const Option& o : registry.find(config).options) {
    const bool replaced = !o.instead.empty() && !config.value(o.instead, json()).is_null();
    if (must_be_given(o) && o.type == "model" && !config.contains(o.name) && !replaced)
      config[o.name] = kTables[n++ % kTables.size()];
    if (registry.what() != "drafter" || !config.contains(o.name) || config[o.name].is_null()) continue;
    if (o.type == "drafter") add_tables(registry, config[o.name], n);
    if (o.type == "drafters")
      for (json& inner : config[o.name]) add_tables(registry, inner, n);
  }
}

template <class T> json with_tables(const Registry<T>& registry, json config, std::size_t n) {
  add_tables(registry, config, n);
  return registry.complete(config);
}

}  // namespace

template <class T> json configured(const Registry<T>& registry, json config) {
  return with_tables(registry, std::move(config), 0);
}

template <class T> std::vector<json> configurations(const Registry<T>& registry, const std::string& name) {
  if (const std::string why = needs_a_user(registry, name); !why.empty()) throw Error(why);
  const Entry<T>& entry = registry.find({{"name", name}});
  std::vector<json> examples = entry.examples;
  if (examples.empty()) examples.push_back(json::object());
  const bool has_model =
      std::ranges::any_of(entry.options, [](const Option& o) { return must_be_given(o) && o.type == "model"; });
  // Every table model has its turn: what a drafter does wrong may show beside one target alone.
  const std::size_t count = has_model ? std::max(examples.size(), kTables.size()) : examples.size();
  std::vector<json> all;
  for (std::size_t i = 0; i < count; ++i) {
    json config = examples[i % examples.size()];
    config["name"] = name;
    all.push_back(with_tables(registry, std::move(config), i));
  }
  return all;
}

template <class T> std::vector<json> configurations(const Registry<T>& registry) {
  std::vector<json> all;
  for (const auto& [name, entry] : registry.entries()) {
    if (!needs_a_user(registry, name).empty()) continue;
    for (json& config : configurations(registry, name)) all.push_back(std::move(config));
  }
  return all;
}

template <class T> std::vector<std::string> not_configured(const Registry<T>& registry) {
  std::vector<std::string> sentences;
  for (const auto& [name, entry] : registry.entries())
    if (const std::string why = needs_a_user(registry, name); !why.empty()) sentences.push_back(why);
  return sentences;
}

#define FORETOKEN_CONFIGURATIONS(T)                                                  \
  template json configured(const Registry<T>&, json);                                \
  template std::vector<json> configurations(const Registry<T>&, const std::string&); \
  template std::vector<json> configurations(const Registry<T>&);                     \
  template std::vector<std::string> not_configured(const Registry<T>&);
FORETOKEN_CONFIGURATIONS(Drafter)
FORETOKEN_CONFIGURATIONS(LengthPolicy)
FORETOKEN_CONFIGURATIONS(Verifier)
#undef FORETOKEN_CONFIGURATIONS

}  // namespace foretoken::conformance
