#include "experiments/conformance/configurations.h"

#include <map>

#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

using nlohmann::json;

// Configs to try instead of the defaults.
const std::map<std::string, json>& tried() {
  static const std::map<std::string, json> table = {
      {"ngram", json::array({{{"longest", 3}, {"shortest", 1}}, {{"longest", 2}, {"shortest", 2}}})},
      {"draft_model", json::array({{{"model", "table:other"}},
                                   {{"model", "table:far"}},
                                   {{"model", "table:uniform"}},
                                   {{"model", "table:other"}, {"temperature", 0.5}}})},
      {"draft_tree", json::array({{{"model", "table:other"}, {"shape", {2, 2}}},
                                  {{"model", "table:other"}, {"shape", {2, 1, 1}}, {"draws", "without_replacement"}},
                                  {{"model", "table:far"},
                                   {"shape", json::parse("[[0], [1], [0, 0], [1, 0], [1, 1], [1, 0, 0], [1, 0, 1]]")}},
                                  {{"model", "table:uniform"}, {"shape", {3, 1}}, {"draws", "certain"}},
                                  {{"model", "table:other"}, {"shape", {1, 1, 1}}, {"temperature", 0.5}}})},
      {"draft_dynamic", json::array({{{"model", "table:other"}, {"width", 2}, {"expand", 2}},
                                     {{"model", "table:far"}, {"width", 3}, {"expand", 1}}})},
  };
  return table;
}

bool must_be_given(const Option& o) { return o.standard.is_null() && !o.optional; }

// Why only a user can configure an entry; empty if the kit can.
template <class T> std::string needs_a_user(const Registry<T>& registry, const std::string& name) {
  for (const Option& o : registry.find({{"name", name}}).options)
    if (must_be_given(o) && o.type != "model")
      return "the " + registry.what() + " '" + name + "' needs the option '" + o.name + "' (" + o.type + ": " +
             o.meaning + "); give it beside the name, as --" + registry.what() + " '{\"name\": \"" + name + "\", \"" +
             o.name + "\": ...}'";
  return "";
}

}  // namespace

template <class T> json configured(const Registry<T>& registry, json config) {
  for (const Option& o : registry.find(config).options)
    if (must_be_given(o) && o.type == "model" && !config.contains(o.name)) config[o.name] = "table:other";
  return registry.complete(config);
}

template <class T> std::vector<json> configurations(const Registry<T>& registry, const std::string& name) {
  if (const std::string why = needs_a_user(registry, name); !why.empty()) throw Error(why);
  const auto known = tried().find(name);
  const json variants = known == tried().end() ? json::array({json::object()}) : known->second;
  std::vector<json> all;
  for (json config : variants) {
    config["name"] = name;
    all.push_back(configured(registry, config));
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
