#include "framework/model/quantized/module_names.h"

#include <algorithm>

#include "framework/text/json_file.h"

namespace foretoken {
namespace {

std::vector<std::string> strings(const Fields& settings, const char* key) {
  std::vector<std::string> all;
  if (!settings.has(key)) return all;
  for (const auto& name : settings.array(key)) {
    if (!name.is_string() || name == "") settings.refuse(key, "must be a list of names of modules");
    all.push_back(name);
  }
  return all;
}

// Where the pattern matches from the beginning: the end of the match, else npos.
std::size_t match_at_begin(const Pattern& pattern, const std::string& text) {
  const auto found = pattern.find_all(text);
  return !found.empty() && found[0].first == 0 ? found[0].second : std::string::npos;
}

bool is_boundary(const std::string& module, std::size_t at) {
  return at == module.size() || (at < module.size() && module[at] == '.') ||
         (at > 0 && at < module.size() && module[at - 1] == '.');
}

}  // namespace

ExcludedModules::ExcludedModules(const Fields& settings, const char* key) {
  for (const std::string& name : strings(settings, key)) {
    if (name.find_first_of("*+?[](){}|^$\\") == std::string::npos)
      names_.push_back(name);
    else
      patterns_.push_back(Pattern::of_names(name, settings.where() + ": '" + settings.name(key) + "'"));
  }
}

bool ExcludedModules::contains(const std::string& module) const {
  return std::ranges::any_of(names_,
                             [&](const std::string& name) {
                               return module.ends_with(name) ||
                                      (module.starts_with(name) && is_boundary(module, name.size()));
                             }) ||
         std::ranges::any_of(patterns_, [&](const Pattern& pattern) {
           const std::size_t end = match_at_begin(pattern, module);
           return end != std::string::npos && is_boundary(module, end);
         });
}

ModuleTargets::ModuleTargets(const Fields& settings, const char* key) {
  for (const std::string& name : strings(settings, key)) {
    if (name.starts_with("re:"))
      patterns_.push_back(Pattern::of_names(name.substr(3), settings.where() + ": '" + settings.name(key) + "'"));
    else
      names_.push_back(name);
  }
}

int ModuleTargets::match(const std::string& module) const {
  if (std::ranges::find(names_, module) != names_.end()) return 3;
  if (std::ranges::any_of(patterns_, [&](const Pattern& p) { return match_at_begin(p, module) != std::string::npos; }))
    return 2;
  return std::ranges::find(names_, "Linear") != names_.end() ? 1 : 0;
}

}  // namespace foretoken
