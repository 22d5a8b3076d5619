#include "experiments/session/sweep_names.h"

#include <vector>

#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

json with_names(const json& value, const json& names, const std::string& where, std::set<std::string>* used) {
  if (names.empty()) return value;
  if (value.is_structured()) {
    json found = value;
    for (json& inner : found) inner = with_names(inner, names, where, used);
    return found;
  }
  if (!value.is_string() || !value.get_ref<const std::string&>().starts_with('@')) return value;
  const std::string name = value.get<std::string>().substr(1);
  if (names.contains(name)) {
    if (used) used->insert(name);
    return names[name];
  }
  std::vector<std::string> known;
  for (const auto& [other, unused] : names.items()) known.push_back(other);
  throw Error(where + ": '@" + name + "' is none of the document's names" + suggestion(name, known) + ": they are " +
              listed(known));
}

}  // namespace foretoken
