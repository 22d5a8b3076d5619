#include "experiments/program/list.h"

#include <cstdio>

namespace foretoken {

using nlohmann::ordered_json;

namespace {

ordered_json described(const Option& o) {
  ordered_json option{{"name", o.name},
                      {"type", o.type},
                      {"needed", o.standard.is_null() && !o.optional},
                      {"default", o.standard},
                      {"meaning", o.meaning}};
  if (o.least > -1e300) option["least"] = o.least;
  if (o.most < 1e300) option["most"] = o.most;
  return option;
}

template <class T> ordered_json described(const Registry<T>& registry) {
  ordered_json all = ordered_json::array();
  for (const auto& [name, entry] : registry.entries()) {
    ordered_json options = ordered_json::array();
    for (const Option& o : entry.options) options.push_back(described(o));
    all.push_back({{"name", name}, {"summary", entry.summary}, {"source", entry.source}, {"options", options}});
    if (!entry.plugin.empty()) all.back()["plugin"] = entry.plugin;
  }
  return all;
}

std::string text_of(const std::string& title, const ordered_json& entries) {
  std::string s = title + "\n";
  for (const auto& e : entries) {
    const std::string source = e["source"];
    s += "  " + e["name"].get<std::string>() + ": " + e["summary"].get<std::string>() +
         (source.empty() ? "" : "  [" + source + "]") +
         (e.contains("plugin") ? "  from " + e["plugin"].get<std::string>() : "") + "\n";
    for (const auto& o : e["options"])
      s += "      " + o["name"].get<std::string>() + "  " + o["type"].get<std::string>() + ", " +
           (o["needed"] ? "needed" : "default " + o["default"].dump()) + ": " + o["meaning"].get<std::string>() + "\n";
  }
  return s;
}

}  // namespace

std::string list_registered(const Registries& registries, bool as_json) {
  const ordered_json drafters = described(registries.drafters), policies = described(registries.policies),
                     verifiers = described(registries.verifiers);
  if (as_json)
    return ordered_json{{"drafters", drafters}, {"policies", policies}, {"verifiers", verifiers}}.dump(2) + "\n";
  return text_of("drafters", drafters) + "\n" + text_of("length policies", policies) + "\n" +
         text_of("verifiers", verifiers);
}

}  // namespace foretoken
