#include "experiments/conformance/components.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "framework/components/host.h"
#include "framework/components/named_faults.h"
#include "framework/engine/failures.h"
#include "kernels/error.h"
#include "kernels/philox.h"

namespace foretoken::conformance {
namespace {

using nlohmann::json;

// The models that required options name in turn. "table:same" is left to the laws that ask for it.
constexpr std::array kTables = {"table:other", "table:far", "table:uniform"};

bool must_be_given(const Option& o) { return o.standard.is_null() && !o.optional; }

// Why only a user can configure an entry; empty if the kit or its examples can.
template <class T> std::string needs_a_user(const Registry<T>& registry, const std::string& name) {
  const Entry<T>& entry = registry.find({{"name", name}});
  const auto in_examples = [&](const Option& o) {
    return !entry.examples.empty() &&
           std::ranges::all_of(entry.examples, [&](const json& example) { return example.contains(o.name); });
  };
  for (const Option& o : entry.options)
    if (must_be_given(o) && o.type != "model" && !in_examples(o))
      return "the " + registry.what() + " '" + name + "' needs the option '" + o.name + "' (" + o.type + ": " +
             o.meaning + "); give it beside the name, as --" + registry.what() + " '{\"name\": \"" + name + "\", \"" +
             o.name + "\": ...}'";
  return "";
}

// Table models for the required models that are missing, of inner drafters too: the n-th one, then the next.
template <class T> void add_tables(const Registry<T>& registry, json& config, std::size_t& n) {
  for (const Option& o : registry.find(config).options) {
    const bool replaced = !o.instead.empty() && !config.value(o.instead, json()).is_null();
    if (must_be_given(o) && o.type == "model" && !config.contains(o.name) && !replaced)
      config[o.name] = kTables[n++ % kTables.size()];
    if (registry.what() != "drafter" || !config.contains(o.name) || config[o.name].is_null()) continue;
    if (o.type == "drafter") add_tables(registry, config[o.name], n);
    if (o.type == "drafters")
      for (json& inner : config[o.name]) add_tables(registry, inner, n);
  }
}

void expect_kept(const Needs& needs, const ModelInfo& target, const json& drafter) {
  try {
    (void)with_taps(target, needs.hidden);
  } catch (const Error& e) {
    throw Error("the drafter '" + drafter.at("name").get<std::string>() +
                "' reads states that no model of this kit has: " + e.what());
  }
}

template <class T> json with_tables(const Registry<T>& registry, json config, std::size_t n) {
  add_tables(registry, config, n);
  return registry.complete(config);
}

}  // namespace

template <class T> json configured(const Registry<T>& registry, json config) {
  return with_tables(registry, std::move(config), 0);
}

template <class T> std::vector<json> configurations(const Registry<T>& registry, const std::string& name) {
  if (const std::string why = needs_a_user(registry, name); !why.empty()) throw Error(why);
  const Entry<T>& entry = registry.find({{"name", name}});
  std::vector<json> examples = entry.examples;
  if (examples.empty()) examples.push_back(json::object());
  const bool has_model =
      std::ranges::any_of(entry.options, [](const Option& o) { return must_be_given(o) && o.type == "model"; });
  // Every table model has its turn: what a drafter does wrong may show beside one target alone.
  const std::size_t count = has_model ? std::max(examples.size(), kTables.size()) : examples.size();
  std::vector<json> all;
  for (std::size_t i = 0; i < count; ++i) {
    json config = examples[i % examples.size()];
    config["name"] = name;
    all.push_back(with_tables(registry, std::move(config), i));
  }
  return all;
}

template <class T> std::vector<json> configurations(const Registry<T>& registry) {
  std::vector<json> all;
  for (const auto& [name, entry] : registry.entries()) {
    if (!needs_a_user(registry, name).empty()) continue;
    for (json& config : configurations(registry, name)) all.push_back(std::move(config));
  }
  return all;
}

template <class T> std::vector<std::string> not_configured(const Registry<T>& registry) {
  std::vector<std::string> sentences;
  for (const auto& [name, entry] : registry.entries())
    if (const std::string why = needs_a_user(registry, name); !why.empty()) sentences.push_back(why);
  return sentences;
}

template <class T>
std::string refusal_of(const Registries& registries, const Registry<T>& registry, const json& config) {
  constexpr std::int64_t kPageBytes = 1 << 12;  // for a position of any drafter's model
  const Models models = table_models({});
  try {
    [[maybe_unused]] const auto traits = registry.traits(config, models.target->info());
    if constexpr (std::is_same_v<T, Drafter>) expect_kept(traits, models.target->info(), config);
    const auto backend = make_reference_backend();
    TargetStates states(*backend, models, Needs{.views_target = true, .page_bounds = true});
    BareHost bare(*backend, models, registries, kPageBytes, 4, states.cache());
    (void)registry.make(config, bare.host);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

#define FORETOKEN_CONFIGURATIONS(T)                                                    \
  template std::string refusal_of(const Registries&, const Registry<T>&, const json&); \
  template json configured(const Registry<T>&, json);                                  \
  template std::vector<json> configurations(const Registry<T>&, const std::string&);   \
  template std::vector<json> configurations(const Registry<T>&);                       \
  template std::vector<std::string> not_configured(const Registry<T>&);
FORETOKEN_CONFIGURATIONS(Drafter)
FORETOKEN_CONFIGURATIONS(LengthPolicy)
FORETOKEN_CONFIGURATIONS(Verifier)
#undef FORETOKEN_CONFIGURATIONS

namespace {

using nlohmann::json;

constexpr double kFar = 1e200;  // a range that ends beyond it is not declared

bool is_number(const Option& o) { return (o.type == "integer" || o.type == "number") && o.least > -kFar; }

// The numbers that an option may have, or those up to four times the given one where no end is declared.
class Range {
 public:
  Range(const Option& o, const json& given)
      : integer_(o.type == "integer"),
        now_(given.is_number() ? given.get<double>() : o.least),
        least_(o.least),
        most_(o.most < kFar ? o.most : 4 * std::max(1.0, std::abs(now_))) {}

  // The number at this share of the range. Equal shares are equal ratios of what is 1 more than the distance from the
  // least, so that a range up to 100 is not all above 25, and one up to 1 is nearly even.
  json at(double share) const { return value(least_ + std::pow(1 + most_ - least_, share) - 1); }
  // Both ends and the quarters, half and twice the given number, and the next; without that number itself.
  std::vector<json> others() const {
    std::vector<json> found{at(0), at(1), at(0.25), at(0.5), at(0.75), value((least_ + now_) / 2), value(2 * now_)};
    if (integer_) found.push_back(value(now_ + 1));
    std::vector<json> all;
    for (const json& x : found)
      if (x != value(now_) && std::ranges::find(all, x) == all.end()) all.push_back(x);
    return all;
  }

 private:
  // Of three digits, so that names of scenarios are short.
  json value(double x) const {
    const double digits = x == 0 ? 1 : std::pow(10, 2 - std::floor(std::log10(std::abs(x))));
    const double within = std::clamp(std::round(x * digits) / digits, least_, most_);
    return integer_ ? json(std::int64_t(within)) : json(within);
  }

  bool integer_;
  double now_, least_, most_;
};

}  // namespace

std::vector<json> other_options(const std::vector<Option>& options, const json& given) {
  constexpr int kTogether = 6;
  std::vector<json> all, together(kTogether, given);
  std::uint32_t numbers = 0;
  for (const Option& o : options) {
    const json& now = given.at(o.name);
    const auto add = [&](const json& value) {
      all.push_back(given);
      all.back()[o.name] = value;
    };
    if (o.type == "boolean" && now.is_boolean()) add(!now.get<bool>());
    if (!is_number(o)) continue;
    const Range range(o, now);
    for (const json& value : range.others()) add(value);
    for (std::size_t i = 0; i < together.size(); ++i)
      together[i][o.name] = range.at(Draws{std::uint64_t(i + 1)}.uniform({Role::draft, numbers, 0}));
    ++numbers;
  }
  if (numbers > 0) all.insert(all.end(), together.begin(), together.end());
  return all;
}

namespace {

constexpr Drawn kAll[] = {Drawn::certain,   Drawn::chain, Drawn::independent, Drawn::without_replacement,
                          Drawn::marginals, Drawn::aside};

class GuardedDrafter : public Around {
 public:
  GuardedDrafter(std::unique_ptr<Drafter> inner, std::vector<Drawn> proposes, std::string who, int vocab)
      : Around(std::move(inner)), proposes_(std::move(proposes)), who_(std::move(who)), vocab_(vocab) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = inner_->draft(requests);
    if (trees.size() != requests.size())
      throw Error(who_ + " returned " + std::to_string(trees.size()) + " trees for " + std::to_string(requests.size()) +
                  " requests; Drafter::draft must return one tree for each");
    for (std::size_t i = 0; i < trees.size(); ++i) expect(trees[i], requests[i]);
    return trees;
  }

 private:
  void expect(const DraftTree& tree, const DraftRequest& r) const {
    try {
      expect_tree(tree, {r.sequence->last(), r.budget, vocab_, kAll, proposes_}, who_);
      expect_distributions(tree, vocab_, who_);
    } catch (const Error& e) {
      throw Error(for_sequence(r.sequence->id, e.what()));
    }
  }

  std::vector<Drawn> proposes_;
  std::string who_;
  int vocab_;
};

template <class T> void name_all(Registry<T>& registry) {
  const auto entries = registry.entries();
  for (const auto& [name, entry] : entries)
    registry.replace(name, naming_faults(entry, {"the " + registry.what() + " '" + name + "'", true}));
}

}  // namespace

Registries guarded(Registries registries) {
  name_all(registries.drafters), name_all(registries.policies), name_all(registries.verifiers);
  const auto named = std::make_shared<const Registries>(registries);
  for (const auto& [name, of_name] : named->drafters.entries()) {
    Entry<Drafter> entry = of_name;
    entry.make = [named, who = "the drafter '" + name + "'"](const nlohmann::json& options, Host& host) {
      const Needs needs = named->drafters.traits(options, host.target());
      return std::make_unique<GuardedDrafter>(named->drafters.make(options, host), needs.proposes, who,
                                              host.target().vocab);
    };
    registries.drafters.replace(name, entry);
  }
  return registries;
}

}  // namespace foretoken::conformance
