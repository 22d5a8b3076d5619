#include "experiments/session/measured_pair.h"

#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

json without_folders(json value) {
  if (value.is_string()) {
    const std::string text = value;
    return text.substr(text.rfind('/') + 1);  // npos + 1 is 0
  }
  if (value.is_structured())
    for (json& inner : value) inner = without_folders(std::move(inner));
  return value;
}

}  // namespace

json pair_of(const json& run) { return {{"target", run.at("target")}, {"drafter", run.at("drafter")}}; }

void expect_pair(const json& document, const json& run, const std::string& file) {
  for (const char* part : {"target", "drafter"}) {
    if (!document.is_object() || !document.contains(part) || !document[part].is_object()) continue;
    const json& named = document[part];
    const auto expect = [&](const std::string& key, const json& value) {
      const json own = run.at(part).value(key, json());
      if (without_folders(value) == without_folders(own)) return;
      throw Error(file + " was measured with '/" + part + "/" + key + "' " + shown(value) + ", and this run has " +
                  shown(own) + "; name a file that was made for these models");
    };
    if (named.contains("name")) expect("name", named["name"]);  // first, since other options follow from it
    for (const auto& [key, value] : named.items()) expect(key, value);
  }
}

}  // namespace foretoken
