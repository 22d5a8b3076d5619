// Drafters of drafters without an engine: arms that the test scripts, asked for trees by hand.
#pragma once
#include <map>

#include "experiments/conformance/scenario.h"
#include "framework/components/host.h"
#include "tests/support/sentence.h"
#include "tests/support/states.h"

namespace foretoken::test {

using nlohmann::json;

// What the arm "arm" of each number did.
struct ArmLog {
  std::vector<SequenceId> drafted;  // requests whose budget drafts
  std::vector<SequenceId> read;     // the others
  std::vector<Budget> budgets;      // of the first
  std::vector<Draws> draws;         // of the first
  std::vector<int> observed;        // nodes of the trees of outcomes
  int steps = 0, forgotten = 0;
};
using ArmLogs = std::map<int, ArmLog>;

// {"name": "arm", "arm": k, "paths": [[3, 4], [3, 5]]} guesses these paths as far as its budget allows. "drawn": the
// first path is drawn, as a chain, from a distribution that is one-hot; it is no more than the shape of one.
class ScriptedArm : public Drafter {
 public:
  ScriptedArm(Backend& backend, json options, ArmLog& log)
      : backend_(backend), options_(std::move(options)), log_(log) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      const DraftRequest& r = requests[i];
      (r.budget.drafts() ? log_.drafted : log_.read).push_back(r.sequence->id);
      if (!r.budget.drafts()) continue;
      log_.budgets.push_back(r.budget), log_.draws.push_back(r.draws);
      for (const json& path : options_["paths"]) add(trees[i], path, r.budget);
    }
    return trees;
  }
  void observe(std::span<const Outcome> outcomes) override {
    for (const Outcome& o : outcomes) log_.observed.push_back(o.tree->nodes);
  }
  void observe_step(const StepReport&) override { ++log_.steps; }
  void forget(const Sequence&) override { ++log_.forgotten; }

 private:
  void add(DraftTree& tree, const json& path, const Budget& budget) const {
    for (int at = 0, depth = 0; depth < std::min(int(path.size()), budget.depth); ++depth) {
      const Token token = path[std::size_t(depth)];
      const bool drawn = options_["drawn"];
      const int known = drawn ? -1 : tree.match(at, token);
      if (known < 0 && tree.nodes == budget.nodes) return;
      at = known >= 0 ? known : drawn ? tree.grow(at, Drawn::chain) : tree.guess(at, token);
      if (drawn) *tree.tokens.row<Token>(at) = token;
    }
  }

  Backend& backend_;
  json options_;
  ArmLog& log_;
};

inline json arm(int number, const json& paths, const json& more = json::object()) {
  json config{{"name", "arm"}, {"arm", number}, {"paths", paths}};
  config.update(more);
  return config;
}

// The registries with "arm", whose logs the caller keeps.
inline Registries with_arms(ArmLogs& logs) {
  Registries r = conformance::all_registries();
  r.drafters.add("arm", {"",
                         "",
                         {{"arm", "integer", nullptr, ""},
                          {"paths", "list", nullptr, ""},
                          {"drawn", "boolean", false, ""},
                          {"waits", "boolean", false, ""},
                          {"any_tree", "boolean", false, ""}},
                         [&logs](const json& o, Host& host) {
                           return std::make_unique<ScriptedArm>(host.backend(), o, logs[o.at("arm").get<int>()]);
                         },
                         [](const json& o, const ModelInfo&) {
                           return Needs{.proposes = {o.at("drawn") == true ? Drawn::chain : Drawn::certain},
                                        .confidence = true,
                                        .waits = o.at("waits"),
                                        .any_tree = o.at("any_tree")};
                         }});
  return r;
}

class PartsByHand {
 public:
  explicit PartsByHand(const json& config) : drafter_(registries_.drafters.make(config, host_)) {}

  Drafter& drafter() { return *drafter_; }
  ArmLog& log(int arm) { return logs_[arm]; }
  // Of sequences 1, 2, ..., a budget for each; of these categories, if given.
  std::vector<DraftTree> draft(const std::vector<Budget>& budgets, const std::vector<std::string>& categories = {}) {
    sequences_.assign(budgets.size(), {});
    std::vector<DraftRequest> requests(budgets.size());
    for (std::size_t i = 0; i < budgets.size(); ++i) {
      sequences_[i].tokens = {1, 2}, sequences_[i].id = i + 1;
      if (!categories.empty()) sequences_[i].category = categories[i];
      requests[i].sequence = &sequences_[i], requests[i].budget = budgets[i];
    }
    return drafter_->draft(requests);
  }
  // Sequence i + 1 was verified with this tree, of which nothing was accepted.
  void observe(std::size_t i, const DraftTree& tree) {
    Verdict verdict;
    verdict.finish(9);
    const Outcome outcome{&sequences_[i], &tree, &verdict};
    drafter_->observe({&outcome, 1});
  }
  const Sequence& sequence(std::size_t i) const { return sequences_[i]; }
  // The nodes below the root as "parent>token", in order.
  static std::string text(const DraftTree& tree) {
    std::string all;
    for (int n = 1; n < tree.nodes; ++n)
      all += (n > 1 ? " " : "") + std::to_string(*tree.parents.row<std::int32_t>(n)) + ">" +
             std::to_string(*tree.known.row<Token>(n));
    return all;
  }

 private:
  static ModelInfo target() {
    ModelInfo info;
    info.name = "target", info.vocab = 100;
    return info;
  }

  ArmLogs logs_;
  Registries registries_ = with_arms(logs_);
  std::unique_ptr<Backend> backend_ = make_reference_backend();
  PagePool pool_{*backend_, 64, 1};
  ModelInfo info_ = target();
  Host host_{*backend_, pool_, info_, {}, false, Host::Offers{.registries = &registries_}};
  std::unique_ptr<Drafter> drafter_;
  std::vector<Sequence> sequences_;
};

}  // namespace foretoken::test
