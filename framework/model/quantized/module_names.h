// The lists of modules in a quantization_config: which are quantized, and which are left dense. This module must not
// know how any of them is stored.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "framework/text/pattern.h"

namespace foretoken {

class Fields;

// As Transformers reads modules_to_not_convert: a name matches a module and all below it, or the end of a module's
// name; it may be a regular expression.
class ExcludedModules {
 public:
  ExcludedModules() = default;
  ExcludedModules(const Fields& settings, const char* key);
  bool contains(const std::string& module) const;

 private:
  std::vector<std::string> names_;
  std::vector<Pattern> patterns_;
};

// As compressed-tensors reads targets and ignore: the name of a module, "re:" and a regular expression that matches
// from the beginning of the name, or the class "Linear".
class ModuleTargets {
 public:
  ModuleTargets() = default;
  ModuleTargets(const Fields& settings, const char* key);
  // How exactly it is named: 3 by its name, 2 by an expression, 1 by its class, 0 not at all.
  int match(const std::string& module) const;

 private:
  std::vector<std::string> names_;
  std::vector<Pattern> patterns_;
};

}  // namespace foretoken
