// A sweep is a base run and axes over any of its fields: {"base": run, "axes": {JSON pointer: [values]}}. A document without
// "base" is a single run.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/decode/registry.h"

namespace foretoken {

struct Cell {
  nlohmann::json run;   // complete
  nlohmann::json axes;  // {pointer: value} of this cell
  std::string key;      // 16 hexadecimal digits: the hash of the complete run
};

// Every combination of the axes, the last axis fastest, in the order of the document. `settings` are "POINTER=VALUE"
// overrides of the base. A pointer that is no key of the complete run, an empty axis or a bad document is an Error.
std::vector<Cell> expand(const nlohmann::ordered_json& document, const std::vector<std::string>& settings, const Registries& registries, const std::string& where);

// The same run gives the same key, on any machine: the order of keys does not matter.
std::string key_of(const nlohmann::json& run);

}  // namespace foretoken
