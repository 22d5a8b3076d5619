#include <algorithm>

#include "experiments/trace/replay.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

std::vector<RankPath> paths_of(const TracedRound& round) {
  std::vector<RankPath> paths(std::size_t(round.size()));
  std::vector<int> children(paths.size(), 0);
  for (int n = 1; n < round.size(); ++n) {
    const std::size_t parent = std::size_t(round.node(n).parent);
    paths[std::size_t(n)] = paths[parent];
    paths[std::size_t(n)].push_back(children[parent]++);
  }
  return paths;
}

bool shallower(const RankPath& a, const RankPath& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; }

std::string text_of(const RankPath& path) { return nlohmann::json(path).dump(); }

}  // namespace

CutTree cut_of(const TracedRound& round, const TreeCut& cut) {
  const std::vector<RankPath> paths = paths_of(round);
  std::vector<int> order;
  for (int n = 1; n < round.size(); ++n) {
    const RankPath& path = paths[std::size_t(n)];
    if (int(path.size()) <= cut.depth && (cut.shape.empty() || cut.shape.contains(path))) order.push_back(n);
  }
  std::ranges::sort(order, [&](int a, int b) { return shallower(paths[std::size_t(a)], paths[std::size_t(b)]); });
  if (int(order.size()) > cut.nodes - 1) order.resize(std::size_t(std::max(0, cut.nodes - 1)));
  CutTree left;
  left.nodes = order;
  for (const int n : order) {
    const RankPath& path = paths[std::size_t(n)];
    left.level.push_back(int(path.size())), left.depth = std::max(left.depth, int(path.size()));
    left.chain &= path.back() == 0;
  }
  const auto within = std::ranges::count_if(paths, [&](const RankPath& p) { return int(p.size()) <= left.depth; });
  left.whole_levels = std::size_t(within) == order.size() + 1;
  return left;
}

TracedShape shape_of(const Trace& trace) {
  TracedShape shape;
  std::set<std::set<RankPath>> kinds;  // few, however many rounds there are
  for (const auto& step : trace.steps)
    for (const TracedRound& r : step.rounds) {
      const std::vector<RankPath> paths = paths_of(r);
      kinds.insert({paths.begin() + 1, paths.end()});
    }
  for (const auto& kind : kinds) shape.nodes.insert(kind.begin(), kind.end());
  for (const RankPath& path : shape.nodes) shape.depth = std::max(shape.depth, int(path.size()));
  for (const auto& kind : kinds) {
    std::size_t deepest = 0;
    for (const RankPath& path : kind) deepest = std::max(deepest, path.size());
    const auto down_to = std::ranges::count_if(shape.nodes, [&](const RankPath& p) { return p.size() <= deepest; });
    shape.fixed &= std::size_t(down_to) == kind.size();
  }
  shape.budget = trace.budget().value_or(Budget{int(shape.nodes.size()) + 1, shape.depth});
  return shape;
}

void expect_inside(const TracedShape& shape, const TreeCut& cut, const std::string& who) {
  if (cut.depth > shape.budget.depth && cut.depth != TreeCut::kAllLevels)
    throw Error(who + " asks for " + std::to_string(cut.depth) + " levels, but the drafts of this trace had at most " +
                std::to_string(shape.budget.depth) + "; record a trace with longer drafts");
  if (cut.nodes > shape.budget.nodes && cut.nodes != TreeCut::kAllNodes)
    throw Error(who + " asks for " + std::to_string(cut.nodes) + " nodes, but the drafts of this trace had at most " +
                std::to_string(shape.budget.nodes) + "; record a trace with larger trees");
  for (const RankPath& path : cut.shape)
    if (!shape.nodes.contains(path))
      throw Error(who + " asks for the node " + text_of(path) +
                  ", which the trees of this trace do not have; record a "
                  "trace with wider trees");
  const bool smaller = !cut.shape.empty() || cut.depth < shape.depth || cut.nodes < int(shape.nodes.size()) + 1;
  if (smaller && !shape.fixed)
    throw Error(who +
                " asks for a part of the trees, whose shapes vary in this trace, so that a smaller budget might "
                "have given other nodes; ask for the whole trees, or record a trace of a drafter of fixed shape");
}

namespace {

constexpr double kOne = 1 - 1e-9;

// Every token was a guess, or could have been no other.
bool one_hot(const TracedRound& round) {
  return std::ranges::all_of(round.nodes, [](const TracedNode& n) { return n.token < 0 || n.q > kOne; });
}

bool guesses(const TracedRound& round, const CutTree& tree) {
  return std::ranges::all_of(tree.nodes, [&](int n) { return round.node(n).drawn == Drawn::certain; });
}

// A chain each of whose nodes was drawn from the draft's distribution after the tokens before it, so that the
// distribution at a node is that at the root of the round which begins there.
bool drawn_chain(const TracedRound& round, const CutTree& tree) {
  return tree.chain && std::ranges::all_of(tree.nodes, [&](int n) {
           const Drawn d = round.node(n).drawn;
           return d == Drawn::chain || d == Drawn::independent || d == Drawn::without_replacement;
         });
}

// The nodes from below the root down that hold the output.
std::vector<int> matching_path(TracedOutput output, std::size_t t, const CutTree& tree) {
  std::vector<int> path;
  for (std::size_t i = 0; i < std::size_t(tree.depth) && t + i < output.size(); ++i) {
    const auto child = std::ranges::find_if(tree.nodes, [&](int n) {
      const TracedNode& node = output[t]->node(n);
      return node.parent == (path.empty() ? 0 : path.back()) && node.token == output[t + i]->emitted.front();
    });
    if (child == tree.nodes.end()) break;
    path.push_back(*child);
  }
  return path;
}

// The path of first children, without absent nodes.
CutTree first_path(const TracedRound& round, const CutTree& tree) {
  CutTree path;
  for (std::size_t i = 0; i < tree.nodes.size(); ++i) {  // breadth first, so that a first child comes before others
    const TracedNode& node = round.node(tree.nodes[i]);
    if (node.token < 0 || node.parent != (path.nodes.empty() ? 0 : path.nodes.back())) continue;
    path.nodes.push_back(tree.nodes[i]), path.level.push_back(++path.depth);
  }
  return path;
}

// Of a chain given the output x: token i of it is accepted with min(1, q(x_i) / p(x_i)), all of x_1 ... x_i by a joint
// rule with the least of 1 and the products of q / p up to each of them, and drawn as the draft with q(x_i).
std::vector<double> chain_given_output(TracedOutput output, std::size_t t, const CutTree& tree, Acceptance rule) {
  std::vector<double> reach;
  double product = 1, least = 1, each = 1;
  for (std::size_t i = 0; i < std::size_t(tree.depth) && t + i < output.size(); ++i) {
    const TracedRound& r = *output[t + i];
    if (r.q_next < 0)
      throw Error("nothing was drafted after " + std::to_string(r.at) + " tokens of a request, where a draft from " +
                  std::to_string(output[t]->at) + " tokens on reaches; record the trace without cut drafts");
    const double ratio = r.p_next > 0 ? r.q_next / r.p_next : 1;
    product *= ratio, least = std::min(least, product);
    each *= rule == Acceptance::product ? r.q_next : std::min(1.0, ratio);
    reach.push_back(rule == Acceptance::joint ? least : each);
  }
  return reach;
}

// Sums over the nodes of each level: node by node with `accepted`, the probability of a child given that its parent is
// accepted and its earlier siblings were not.
std::vector<double> by_levels(const TracedRound& round, const CutTree& tree, bool by_p) {
  std::vector<double> reach(std::size_t(tree.depth), 0);
  std::vector<double> here(std::size_t(round.size()), 0), left(here.size(), 1);
  std::vector<std::set<Token>> tried(here.size());
  here[0] = 1;
  for (std::size_t i = 0; i < tree.nodes.size(); ++i) {
    const TracedNode& node = round.node(tree.nodes[i]);
    const std::size_t parent = std::size_t(node.parent), n = std::size_t(tree.nodes[i]);
    const bool again = !tried[parent].insert(node.token).second;
    if (node.token < 0) continue;
    here[n] = here[parent] * (by_p ? (again ? 0 : node.p) : left[parent] * node.accept);
    left[parent] *= 1 - node.accept;
    reach[std::size_t(tree.level[i]) - 1] += here[n];
  }
  return reach;
}

// min(1, the weight above times p / q) along a chain.
std::vector<double> joint_weights(const TracedRound& round, const CutTree& tree) {
  std::vector<double> reach(std::size_t(tree.depth), 0);
  double weight = 1;
  for (std::size_t i = 0; i < tree.nodes.size(); ++i) {
    const TracedNode& node = round.node(tree.nodes[i]);
    if (node.token < 0) break;
    weight = node.q > 0 ? std::min(1.0, weight * node.p / node.q) : 1;
    reach[i] = weight;
  }
  return reach;
}

}  // namespace

const char* name_of(Basis basis) {
  constexpr const char* kNames[] = {"exact", "given output", "expectation"};
  return kNames[int(basis)];
}

RoundReach::RoundReach(const Trace& trace, std::string verifier, const Soundness& soundness)
    : trace_(trace), verifier_(std::move(verifier)), soundness_(soundness) {
  const std::string who = "the verifier '" + verifier_ + "'";
  bool sharp = true;
  for (const auto& step : trace.steps)
    for (const TracedRound& r : step.rounds) {
      sharp &= one_hot(r);
      for (const TracedNode& n : r.nodes)
        if (std::ranges::find(soundness.takes, n.drawn) == soundness.takes.end())
          throw Error(who + " takes no nodes drawn '" + foretoken::name_of(n.drawn) +
                      "', as this trace has; choose another");
    }
  if (soundness.race != trace.race() && !(sharp && trace.temperature() == 0))
    throw Error(who + (soundness.race ? " has" : " has no") +
                " drafts drawn by races, unlike those of this trace; record one with it");
  if (trace.dense() && !soundness.exact())
    throw Error(who +
                " is lossy, so its output, and the positions that it visits, would not be those of this trace; "
                "record a run with it");
}

CutTree RoundReach::judged(const TracedRound& round, const CutTree& tree) const {
  return soundness_.first_children ? first_path(round, tree) : tree;
}

// Whether the verifier states a formula of what it accepts given such a tree.
bool RoundReach::has_formula(const CutTree& tree) const {
  switch (soundness_.acceptance) {
    case Acceptance::overlap:
      return !soundness_.race;
    case Acceptance::product:
      return true;
    case Acceptance::k_seq:
    case Acceptance::joint:
      return tree.chain;
    default:
      return false;
  }
}

// Whether the accepted path is the part of the tree that agrees with the output.
bool RoundReach::finds_matches(const TracedRound& round, const CutTree& tree) const {
  if (soundness_.race) return true;
  if (soundness_.acceptance == Acceptance::other) return false;
  if (guesses(round, tree) && (tree.chain || soundness_.acceptance != Acceptance::joint)) return true;
  return trace_.temperature() == 0 && (one_hot(round) || has_formula(tree));
}

Basis RoundReach::basis(const TreeCut& cut) const {
  bool matches = true, chains = true, formula = true;
  for (const auto& step : trace_.steps)
    for (const TracedRound& r : step.rounds) {
      const CutTree tree = judged(r, cut_of(r, cut));
      if (tree.nodes.empty()) continue;
      matches &= finds_matches(r, tree), chains &= drawn_chain(r, tree) && has_formula(tree);
      formula &= has_formula(tree) || (r.reach.contains(verifier_) && tree.whole_levels);
    }
  const bool same_output = trace_.temperature() == 0 || (trace_.race() && soundness_.race);
  if (trace_.dense() && matches) return same_output && !trace_.learns() ? Basis::exact : Basis::given_output;
  if (trace_.dense() && chains) return Basis::given_output;
  if (!formula)
    throw Error("the trace does not say what '" + verifier_ +
                "' accepts of such trees, for which it states no formula; "
                "record one with the name in /trace/verifiers, and ask for whole levels of its trees");
  return Basis::expectation;
}

std::vector<double> RoundReach::reach(TracedOutput output, std::size_t t, const CutTree& whole, Basis basis) const {
  const TracedRound& round = *output[t];
  if (basis == Basis::expectation) return reach_given_tree(round, whole);
  const CutTree tree = judged(round, whole);
  std::vector<double> reach;
  if (finds_matches(round, tree))
    reach.assign(matching_path(output, t, tree).size(), 1);
  else
    reach = chain_given_output(output, t, tree, soundness_.acceptance);
  reach.resize(std::size_t(whole.depth), 0);
  return reach;
}

std::vector<double> RoundReach::reach_given_tree(const TracedRound& round, const CutTree& whole) const {
  const CutTree tree = judged(round, whole);
  std::vector<double> reach;
  if (tree.nodes.empty())
    reach = {};
  else if (!has_formula(tree))
    reach = round.reach.at(verifier_).at(std::size_t(tree.depth) - 1);
  else if (soundness_.acceptance == Acceptance::joint)
    reach = joint_weights(round, tree);
  else
    reach = by_levels(round, tree, soundness_.acceptance == Acceptance::product);
  reach.resize(std::size_t(whole.depth), 0);
  return reach;
}

std::vector<int> RoundReach::path(TracedOutput output, std::size_t t, const CutTree& whole, int accepted) const {
  const CutTree tree = judged(*output[t], whole);
  std::vector<int> path = matching_path(output, t, tree);
  if (int(path.size()) >= accepted) {
    path.resize(std::size_t(accepted));
    return path;
  }
  const auto last = std::ranges::find(tree.level, accepted) - tree.level.begin();
  path.clear();
  for (int n = tree.nodes.at(std::size_t(last)); n != 0; n = output[t]->node(n).parent) path.insert(path.begin(), n);
  return path;
}

}  // namespace foretoken
