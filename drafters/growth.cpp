#include "drafters/growth.h"

#include <algorithm>

#include "framework/text/known_names.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

struct Kind {
  std::string name;
  std::vector<Option> options;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kKinds{
      {"chain", chain_options()}, {"tree", tree_options()}, {"dynamic", dynamic_options()}};
  return kKinds;
}

bool has(const Kind& kind, const std::string& option) {
  return std::ranges::find(kind.options, option, &Option::name) != kind.options.end();
}

}  // namespace

std::vector<Option> with_growth_options(std::vector<Option> all) {
  all.push_back(
      {.name = "growth",
       .type = "string",
       .standard = "chain",
       .meaning = "how its trees grow: chain, tree (of a fixed shape) or dynamic (of the most probable paths)",
       .of_trees = true});
  for (const Kind& kind : kinds())
    for (Option o : kind.options) {
      if (std::ranges::find(all, o.name, &Option::name) != all.end()) continue;
      if (!o.optional) o.meaning += "; of \"" + kind.name + "\" alone, null: " + o.standard.dump();
      o.standard = nullptr, o.optional = o.of_trees = true;
      all.push_back(std::move(o));
    }
  return all;
}

Growth chosen_growth(nlohmann::json o, const std::string& drafter, const ModelInfo& target, bool marginals) {
  const std::string name = o.at("growth").get<std::string>();
  const auto own = std::ranges::find(kinds(), name, &Kind::name);
  if (own == kinds().end()) unknown_name("growth", name, {"chain", "tree", "dynamic"});
  for (const Kind& kind : kinds())
    for (const Option& option : kind.options)
      if (!o.at(option.name).is_null() && !has(*own, option.name))
        throw Error("option '" + option.name + "' of the drafter '" + drafter + "' is for \"growth\": \"" + kind.name +
                    "\", but it grows as \"" + name + "\"; leave it out, or choose that growth");
  for (const Option& option : own->options)
    if (o.at(option.name).is_null()) o[option.name] = option.standard;
  if (name == "dynamic") return dynamic_growth(o);
  if (name == "tree") return tree_growth(o, drafter, target, marginals);
  if (!marginals) return chain_growth(o, drafter);
  // All at once: a tree without siblings, of which the budget leaves what there are levels for.
  for (const Option& option : tree_options())
    if (option.name != "temperature") o[option.name] = option.standard;
  const int longest = target.positions > 0 ? std::clamp(target.positions - 1, 1, kMaxPath) : kMaxPath;
  o["shape"] = std::vector<int>(std::size_t(longest), 1), o["cut"] = true;
  return tree_growth(o, drafter, {}, marginals);
}

}  // namespace foretoken
