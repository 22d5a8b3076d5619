#include "framework/components/registry.h"

#include <algorithm>
#include <numeric>

#include "framework/model/model_choice.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

int edit_distance(const std::string& a, const std::string& b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = int(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string list(const std::vector<std::string>& words) {
  std::string s;
  for (const auto& w : words) s += (s.empty() ? "" : ", ") + w;
  return s;
}

bool fits(const nlohmann::json& value, const Option& o) {
  if (value.is_null()) return o.optional;
  if (o.type == "integer")
    return value.is_number_integer() && value.get<double>() >= o.least && value.get<double>() <= o.most;
  if (o.type == "number") return value.is_number() && value.get<double>() >= o.least && value.get<double>() <= o.most;
  if (o.type == "boolean") return value.is_boolean();
  if (o.type == "model") return value.is_object() || (value.is_string() && value != "");
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

std::string nearest(const std::string& name, const std::vector<std::string>& known) {
  std::string best;
  int least = std::max(2, int(name.size()) / 3) + 1;
  for (const auto& k : known)
    if (const int d = edit_distance(name, k); d < least) least = d, best = k;
  return best;
}

void unknown_name(const std::string& what, const std::string& name, const std::vector<std::string>& known) {
  const std::string near = nearest(name, known);
  throw Error("unknown " + what + " '" + name + "'" + (near.empty() ? "" : " (did you mean '" + near + "'?)") +
              "; known: " + list(known));
}

void taken_name(const std::string& what, const std::string& name, const std::string& plugin) {
  throw Error("there is a " + what + " '" + name + "' already (" + (plugin.empty() ? "built in" : "from " + plugin) +
              "); register yours under another name");
}

nlohmann::json fill_options(const std::string& what, const nlohmann::json& config, const std::vector<Option>& options) {
  std::vector<std::string> known{"name"};
  for (const auto& o : options) known.push_back(o.name);
  const std::string owner = what + " '" + config.value("name", "") + "'";
  for (const auto& [key, value] : config.items())
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      const std::string near = nearest(key, known);
      throw Error(owner + " has no option '" + key + "'" + (near.empty() ? "" : " (did you mean '" + near + "'?)") +
                  "; its options: " + list(known));
    }
  nlohmann::json filled{{"name", config.at("name")}};
  for (const auto& o : options) {
    filled[o.name] = config.contains(o.name) ? config[o.name] : o.standard;
    if (fits(filled[o.name], o)) continue;
    if (!config.contains(o.name))
      throw Error(owner + " needs the option '" + o.name + "' (" + o.type + ": " + o.meaning + ")");
    throw Error("option '" + o.name + "' of " + owner + " must be " + o.type + " (" + o.meaning + "), not " +
                filled[o.name].dump());
  }
  for (const auto& o : options)
    if (o.type == "model" && !filled[o.name].is_null())
      filled[o.name] = model_option(owner, filled[o.name], filled.value("inflate", nlohmann::json()));
  return filled;
}

}  // namespace foretoken
