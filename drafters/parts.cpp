#include "drafters/parts.h"

#include <algorithm>

#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr int kDeepest = 4;  // components within components that Draws::within can name

// Whether the value, or anything inside it, is a component of this name.
bool names_component(const nlohmann::json& value, const std::string& name) {
  if (value.is_object() && value.contains("name") && value["name"] == name) return true;
  return value.is_structured() &&
         std::ranges::any_of(value, [&](const nlohmann::json& inner) { return names_component(inner, name); });
}

int nesting(const nlohmann::json& value);

// Levels of Draws::within that a component and those within it take.
int scopes(const nlohmann::json& value) {
  return nesting(value) + (value.is_object() && value.contains("name") ? 1 : 0);
}

// Those that a component gives to others.
int nesting(const nlohmann::json& value) {
  int deepest = 0;
  if (!value.is_structured()) return deepest;
  for (const nlohmann::json& inner : value) deepest = std::max(deepest, scopes(inner));
  return deepest + int(value.is_object() && value.contains("inner"));
}

int levels(const DraftTree& tree) {
  std::vector<int> depth(std::size_t(tree.nodes), 0);
  for (int n = 1; n < tree.nodes; ++n)
    depth[std::size_t(n)] = depth[std::size_t(*tree.parents.row<std::int32_t>(n))] + 1;
  return std::ranges::max(depth);
}

}  // namespace

Parts::Parts(Host& host, const nlohmann::json& configs) : vocab_(host.target().vocab) {
  for (const nlohmann::json& config : configs) {
    const std::size_t before = host.caches().size();
    parts_.push_back(
        {"the drafter '" + config.at("name").get<std::string>() + "'", host.needs_of(config), host.drafter(config)});
    const auto own = host.caches().subspan(before);
    parts_.back().caches.assign(own.begin(), own.end());
  }
}

std::vector<DraftTree> Parts::draft(int k, std::span<const DraftRequest> requests) {
  std::vector<DraftRequest> within(requests.begin(), requests.end());
  for (DraftRequest& r : within) r.draws = r.draws.within(std::uint32_t(k));
  return draft_as_named(k, within);
}

std::vector<DraftTree> Parts::draft_as_named(int k, std::span<const DraftRequest> requests) {
  if (requests.empty()) return {};
  const Part& part = parts_[std::size_t(k)];
  for (const DraftRequest& r : requests)
    for (const auto& c : part.caches) c->forget_lack(*r.sequence);
  std::vector<DraftTree> trees = part.drafter->draft(requests);
  if (trees.size() != requests.size())
    throw Error(part.who + " returned " + std::to_string(trees.size()) + " trees for " +
                std::to_string(requests.size()) + " requests; Drafter::draft must return one tree for each");
  for (std::size_t i = 0; i < trees.size(); ++i)
    expect_tree(trees[i],
                {requests[i].sequence->last(), requests[i].budget, vocab_, part.needs.proposes, part.needs.proposes},
                part.who);
  for (const DraftRequest& r : requests)
    if (std::ranges::any_of(part.caches, [&](const auto& c) { return c->lacked_pages(*r.sequence); }))
      lacking_.insert(r.sequence->id);
  return trees;
}

void Parts::draft(int k, std::span<const DraftRequest> requests, std::span<const int> chosen,
                  std::span<DraftTree> trees) {
  std::vector<DraftRequest> some;
  for (const int i : chosen) some.push_back(requests[std::size_t(i)]);
  std::vector<DraftTree> drawn = draft(k, some);
  for (std::size_t at = 0; at < chosen.size(); ++at) trees[std::size_t(chosen[at])] = std::move(drawn[at]);
}

int Parts::length(int k, const DraftRequest& r, const DraftTree& tree) const {
  if (tree.nodes == 1) return 0;
  return draws(tree) && (needs(k).waits || r.budget.confidence > 0) ? r.budget.depth : levels(tree);
}

void Parts::bare_where_pages_lacked(std::span<const DraftRequest> requests, std::span<DraftTree> trees) {
  for (std::size_t i = 0; i < trees.size(); ++i) {
    if (!lacking_.contains(requests[i].sequence->id)) continue;
    trees[i].nodes = 1;
    trees[i].q.distributions.clear();
  }
  lacking_.clear();
}

void Parts::observe(std::span<const Outcome> outcomes) {
  for (const Outcome& o : outcomes) {
    const auto at = returned_.find(o.sequence->id);
    const int drew =
        at != returned_.end() && at->second.parents.raw() == o.tree->parents.raw() && at->second.nodes == o.tree->nodes
            ? at->second.part
            : -1;
    for (int k = 0; k < count(); ++k)
      if (k == drew || needs(k).any_tree) parts_[std::size_t(k)].drafter->observe({&o, 1});
  }
}

void Parts::observe_step(const StepReport& report) {
  for (const Part& part : parts_) part.drafter->observe_step(report);
}

std::string Parts::notice() const {
  std::string all;
  for (const Part& part : parts_)
    if (const std::string one = part.drafter->notice(); !one.empty()) all += (all.empty() ? "" : "; ") + one;
  return all;
}

void Parts::forget(const Sequence& sequence) {
  returned_.erase(sequence.id);
  lacking_.erase(sequence.id);
  for (const Part& part : parts_) part.drafter->forget(sequence);
}

bool draws(const DraftTree& tree) {
  for (int n = 1; n < tree.nodes; ++n)
    if (tree.random(n)) return true;
  return false;
}

Apart apart(std::span<const DraftRequest> requests) {
  Apart all;
  for (std::size_t i = 0; i < requests.size(); ++i)
    (requests[i].budget.drafts() ? all.drafting : all.reading).push_back(int(i));
  return all;
}

Option drafters_option(const std::string& meaning) {
  return {"drafters", "drafters", nullptr, "1 to 8 drafters, as [{\"name\": \"ngram\"}, ...]: " + meaning};
}

void expect_parts(const nlohmann::json& config) {
  const std::string name = config.at("name"), who = "the drafter '" + name + "'";
  const nlohmann::json& parts = config.at("drafters");
  if (parts.empty()) throw Error(who + " is made of no drafter; name at least one in its 'drafters'");
  if (parts.size() > Draws::kComponents)
    throw Error(who + " is made of " + std::to_string(parts.size()) + " drafters, but only " +
                std::to_string(Draws::kComponents) + " have names for their draws; take some of them out");
  expect_nesting(config);
}

void expect_nesting(const nlohmann::json& config) {
  const std::string name = config.at("name"), who = "the drafter '" + name + "'";
  if (std::ranges::any_of(config, [&](const nlohmann::json& option) { return names_component(option, name); }))
    throw Error(who + " is inside another one of its name; list its inner drafters in the outer one");
  if (const int deep = nesting(config); deep > kDeepest)
    throw Error(who + " has components nested " + std::to_string(deep) + " deep, but only " + std::to_string(kDeepest) +
                " have names for their draws; nest fewer");
}

bool learns_from_own_trees(const Needs& needs) { return needs.own_trees || (needs.ranks > 0 && !needs.any_tree); }

void unite_parts(Needs& own, std::span<const Needs> parts, const nlohmann::json&) {
  own.confidence = own.below_drafts = true;
  for (const Needs& part : parts) {
    for (const Drawn d : part.proposes)
      if (std::ranges::find(own.proposes, d) == own.proposes.end()) own.proposes.push_back(d);
    own.confidence &= part.confidence;
    own.own_trees |= learns_from_own_trees(part);
    own.any_tree |= part.any_tree, own.below_drafts &= part.below_drafts;
    own.whole = {std::max(own.whole.nodes, part.whole.nodes), std::max(own.whole.depth, part.whole.depth), 0};
  }
}

}  // namespace foretoken
