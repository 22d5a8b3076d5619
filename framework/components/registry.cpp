#include "framework/components/registry.h"

#include "framework/model/model_choice.h"
#include "framework/text/json_file.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

bool fits(const nlohmann::json& value, const Option& o) {
  if (value.is_null()) return o.optional;
  if (o.type == "integer")
    return value.is_number_integer() && value.get<double>() >= o.least && value.get<double>() <= o.most;
  if (o.type == "number") return value.is_number() && value.get<double>() >= o.least && value.get<double>() <= o.most;
  if (o.type == "boolean") return value.is_boolean();
  if (o.type == "model") return value.is_object() || (value.is_string() && value != "");
  if (o.type == "path") return value.is_string() && value != "";
  return value.is_string();
}

// What a model option says, in full, so that equal choices are equal text.
nlohmann::json model_option(const std::string& owner, const nlohmann::json& model, const nlohmann::json& inflate) {
  try {
    return ModelChoice::read(model, inflate).document();
  } catch (const Error& e) {
    throw Error(owner + ": " + e.what());
  }
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

void nothing_made(const std::string& what, const std::string& name, const std::string& plugin) {
  throw Error("the " + what + " '" + name + "'" + (plugin.empty() ? "" : " of the plugin " + plugin) +
              " was not made: its Entry::make returned null; let it return an object, or throw foretoken::Error");
}

nlohmann::json fill_options(const std::string& what, const nlohmann::json& config, const std::vector<Option>& options) {
  std::vector<std::string> known{"name"};
  for (const auto& o : options) known.push_back(o.name);
  const std::string owner = what + " '" + config.value("name", "") + "'";
  for (const auto& [key, value] : config.items()) expect_option(owner, key, known);
  nlohmann::json filled{{"name", config.at("name")}};
  for (const auto& o : options) {
    filled[o.name] = config.contains(o.name) ? config[o.name] : o.standard;
    if (fits(filled[o.name], o)) continue;
    if (!config.contains(o.name))
      throw Error(owner + " needs the option '" + o.name + "' (" + o.type + ": " + o.meaning + ")");
    throw Error("option '" + o.name + "' of " + owner + " must be " + o.type + " (" + o.meaning + "), not " +
                shown(filled[o.name]));
  }
  for (const auto& o : options)
    if (o.type == "model" && !filled[o.name].is_null())
      filled[o.name] = model_option(owner, filled[o.name], filled.value("inflate", nlohmann::json()));
  return filled;
}

}  // namespace foretoken
