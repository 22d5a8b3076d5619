// One run is one JSON document. This room knows every key of it, its type, unit, range and default; it fills in what is left
// out and refuses what it does not know. It must not know how a run is measured.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/decode/registry.h"

namespace foretoken {

struct RunKey {
  std::string pointer;      // JSON pointer, "/engine/batch"
  std::string type;         // integer, number, boolean, string, path, strings (a list), chair ({"name": ..., options})
  nlohmann::json standard;  // the default; null: none
  std::string meaning;      // with unit and range
  bool required = false;    // must be given
  bool optional = false;    // null is a value
  double least = -1e300, most = 1e300;
};

// All keys, in the order of the tables of the documentation.
const std::vector<RunKey>& run_keys();

// The complete document of a run: defaults filled in, chairs completed by the registries. An unknown key (with the nearest
// known one), a missing or ill-typed value or one out of range is an Error that names it; `where` names the document.
nlohmann::json complete_run(const nlohmann::json& document, const Registries& registries, const std::string& where);

// The key tables of experiments/README.md.
std::string keys_markdown(const Registries& registries);

}  // namespace foretoken
