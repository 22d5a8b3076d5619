// One run is one JSON document. This module knows every key of it, its type, unit, range and default; it fills in what
// is left out and refuses what it does not know. It must not know how a run is measured.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "framework/components/registry.h"

namespace foretoken {

struct RunKey {
  std::string pointer;  // JSON pointer, "/engine/batch"
  std::string type;     // integer, number, boolean, string, path, strings (a list), component ({"name": ..., options}),
                        // model and shape (as ModelChoice reads them), plugins, biases (an object: number by token id),
                        // trace
  nlohmann::json standard;  // the default; null: none
  std::string meaning;      // with unit and range
  bool required = false;    // must be given
  bool optional = false;    // null is a value
  double least = -1e300, most = 1e300;
  std::vector<std::string> choices;   // of a string; empty: any
  bool above = false, below = false;  // `least`, `most` are out of range themselves
  bool left_out = false;              // a complete run lacks it where it is null
};

// All keys, in the order of the tables of the documentation.
const std::vector<RunKey>& run_keys();

// "> 0, <= 1", or the choices; empty where everything of the type is allowed.
std::string range_of(const RunKey& key);

// The complete document of a run: defaults filled in, components completed by the registries, whole numbers written as
// integers, so that equal runs are equal text; of the plugins those that a component comes from, with the hash of each.
// An unknown key (with the nearest known one), a missing or ill-typed value or one out of range is an Error that names
// it; `where` names the document.
nlohmann::json complete_run(const nlohmann::json& document, const Registries& registries, const std::string& where);

// The paths under "plugins" of a run or of the base of a sweep, before it is completed.
std::vector<std::string> plugins_of(const nlohmann::json& document);

// A document as it was written, its keys in their order. A missing file, a syntax error (with line and column) or a key
// that an object has twice is an Error.
nlohmann::ordered_json read_document(const std::filesystem::path& file);

// Every key with type, range, default and meaning: the tables of experiments/keys.md, or lines for a terminal.
std::string describe_keys(const Registries& registries, bool markdown);

}  // namespace foretoken
