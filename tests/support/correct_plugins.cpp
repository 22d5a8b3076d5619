#include "tests/support/correct_plugins.h"

#include <algorithm>
#include <array>
#include <map>

#include "framework/components/host.h"
#include "framework/components/round_model.h"

namespace foretoken::test {
namespace {

using nlohmann::json;

Budget chain_of(int levels) { return {.nodes = levels + 1, .depth = levels}; }

// Tries every length a few times, then takes the best.
class Fastest : public LengthPolicy {
 public:
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    return std::vector<Budget>(past.size(), chain_of(length_ = best()));
  }
  void observe(const StepReport& report) override {
    ++steps_;
    Arm& arm = arms_[std::size_t(length_)];
    arm.seconds += report.phases.total;
    for (const SequenceReport& r : report.sequences) arm.tokens += double(r.emitted.size());
  }

 private:
  static constexpr int kMost = 4, kTrials = 2;
  struct Arm {
    double tokens = 0, seconds = 0;
    double rate() const { return seconds > 0 ? tokens / seconds : 0; }
  };

  int best() const {
    if (steps_ < kTrials * kMost) return 1 + steps_ % kMost;
    return int(std::ranges::max_element(arms_, {}, &Arm::rate) - arms_.begin());
  }

  std::array<Arm, kMost + 1> arms_{};
  int steps_ = 0, length_ = 0;
};

// Its own clock is the backend's.
class Timed : public Drafter {
 public:
  Timed(Backend& backend, std::unique_ptr<Drafter> inner) : backend_(backend), inner_(std::move(inner)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    if (running_) arms_[std::size_t(arm_)].seconds += backend_.seconds(from_, to_);
    arm_ = calls_++ % 3 < 2 ? calls_ % 2 : int(arms_[1].cost() < arms_[0].cost());
    std::vector<DraftRequest> cut(requests.begin(), requests.end());
    for (DraftRequest& r : cut)
      if (arm_ == 0 && r.budget.drafts()) r.budget = chain_of(1);
    from_ = backend_.mark();
    std::vector<DraftTree> trees = inner_->draft(cut);
    to_ = backend_.mark(), running_ = true;
    return trees;
  }
  void observe(std::span<const Outcome> outcomes) override {
    for (const Outcome& o : outcomes) arms_[std::size_t(arm_)].tokens += o.verdict->length + 1;
  }
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }

 private:
  struct Arm {
    double tokens = 1, seconds = 0;
    double cost() const { return seconds / tokens; }
  };

  Backend& backend_;
  std::unique_ptr<Drafter> inner_;
  std::array<Arm, 2> arms_{};
  Mark from_, to_;
  bool running_ = false;
  int calls_ = 0, arm_ = 0;
};

class Marginals : public Drafter {
 public:
  Marginals(Host& host, const json& options)
      : backend_(host.backend()), model_(host, host.load(ModelChoice::read(options.at("model")))) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    const auto [segments, active] = model_.begin(requests, trees, [](const DraftRequest&) { return 1; });
    if (segments.empty()) return trees;
    const Output out = model_.run(segments);
    if (active.empty()) return trees;
    std::vector<DistributionAfter> rows;
    std::vector<TokenDraw> draws;
    for (std::size_t k = 0; k < active.size(); ++k) {
      const DraftRequest& r = requests[std::size_t(active[k])];
      DraftTree& tree = trees[std::size_t(active[k])];
      rows.push_back({r.sequence, &tree, 0, r.sequence->sampling.warp()});
      for (int n = 1; n <= model_.budget(r).chain(); ++n) {
        draws.push_back(r.draw(n, n));
        draws.back().row = int(k), draws.back().to = tree.tokens.row<Token>(n);
      }
    }
    const Distributions q = model_.distributions(out, rows);
    backend_.draw(q, draws, {});
    for (std::size_t k = 0; k < active.size(); ++k)
      for (int n = 1; n <= model_.budget(requests[std::size_t(active[k])]).chain(); ++n) {
        trees[std::size_t(active[k])].grow(n - 1, Drawn::marginals);
        trees[std::size_t(active[k])].q.distributions.push_back(q.slice(int(k), 1));
      }
    return trees;
  }
  void forget(const Sequence& sequence) override { model_.forget(sequence); }

 private:
  Backend& backend_;
  RoundModel model_;
};

class Confident : public Drafter {
 public:
  explicit Confident(std::unique_ptr<Drafter> inner) : inner_(std::move(inner)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftRequest> sure(requests.begin(), requests.end());
    for (DraftRequest& r : sure) r.budget = r.budget.confidence > 0.9f ? Budget{1, 0} : r.budget;
    return inner_->draft(sure);
  }

 private:
  std::unique_ptr<Drafter> inner_;
};

// Demands more after rounds without an accepted token.
class Demanding : public LengthPolicy {
 public:
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> all;
    for (const PastOnly& p : past) all.push_back({5, 4, p.drafted > 0 && p.accepted == 0 ? 0.95f : 0.5f});
    return all;
  }
};

// Passes on what a rule of the sequence's length gives to each inner drafter; the rest are bare roots.
class InTurn : public Drafter {
 public:
  InTurn(Backend& backend, std::vector<std::unique_ptr<Drafter>> inner) : backend_(backend), inner_(std::move(inner)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t k = 0; k < inner_.size(); ++k) {
      std::vector<DraftRequest> own;
      std::vector<std::size_t> at;
      for (std::size_t i = 0; i < requests.size(); ++i)
        if (std::size_t(requests[i].sequence->length()) % 2 == k) {
          own.push_back(requests[i]), at.push_back(i);
          own.back().draws = own.back().draws.within(std::uint32_t(k));
        }
      if (own.empty()) continue;
      std::vector<DraftTree> grown = inner_[k]->draft(own);
      for (std::size_t i = 0; i < at.size(); ++i) trees[at[i]] = std::move(grown[i]);
    }
    return trees;
  }
  void observe(std::span<const Outcome> outcomes) override {
    for (const auto& drafter : inner_) drafter->observe(outcomes);
  }
  void forget(const Sequence& sequence) override {
    for (const auto& drafter : inner_) drafter->forget(sequence);
  }

 private:
  Backend& backend_;
  std::vector<std::unique_ptr<Drafter>> inner_;
};

// Bare roots in every second call.
class Pausing : public Drafter {
 public:
  Pausing(Backend& backend, std::unique_ptr<Drafter> inner) : backend_(backend), inner_(std::move(inner)) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    return calls_++ % 2 == 0 ? inner_->draft(requests) : rooted(backend_, requests);
  }
  void forget(const Sequence& sequence) override { inner_->forget(sequence); }

 private:
  Backend& backend_;
  std::unique_ptr<Drafter> inner_;
  int calls_ = 0;
};

class Long : public LengthPolicy {
 public:
  explicit Long(Budget budget) : budget_(budget) {}
  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    return std::vector<Budget>(past.size(), budget_);
  }

 private:
  Budget budget_;
};

const Option kModel{"model", "model", nullptr, "the draft model"};

Entry<Drafter> drafter(std::vector<Option> options, const Needs& needs,
                       std::function<std::unique_ptr<Drafter>(const json&, Host&)> make) {
  return {"correct",
          "",
          std::move(options),
          std::move(make),
          [needs](const json&, const ModelInfo&) { return needs; },
          {},
          "libcorrect.so"};
}

template <class P> Entry<LengthPolicy> policy(const PolicyTraits& traits) {
  return {"correct",
          "",
          {},
          [](const json&, Host&) { return std::make_unique<P>(); },
          [traits](const json&, const ModelInfo&) { return traits; },
          {},
          "libcorrect.so"};
}

Entry<Drafter> in_turn(int inner) {
  return drafter({kModel}, {.proposes = {Drawn::chain}}, [inner](const json& o, Host& host) {
    std::vector<std::unique_ptr<Drafter>> all;
    for (int k = 0; k < inner; ++k) all.push_back(host.drafter({{"name", "draft_model"}, {"model", o.at("model")}}));
    return std::make_unique<InTurn>(host.backend(), std::move(all));
  });
}

}  // namespace

Registries with_demanding_policy(Registries r) {
  r.policies.add("demanding", policy<Demanding>(Budget{5, 4, 1}));
  return r;
}

Registries with_correct_plugins(const Registries& registries) {
  Registries r = with_demanding_policy(registries);
  r.policies.add("fastest", policy<Fastest>({chain_of(4), true}));
  r.policies.add("long", {"correct",
                          "",
                          {{"levels", "integer", 14, "of every draft", false, 1, kMaxPath}},
                          [](const json& o, Host&) { return std::make_unique<Long>(chain_of(o.at("levels"))); },
                          [](const json& o, const ModelInfo&) { return chain_of(o.at("levels")); },
                          {},
                          "libcorrect.so"});
  r.drafters.add("timed", drafter({kModel}, {.proposes = {Drawn::chain}, .learns = true}, [](const json& o, Host& h) {
                   return std::make_unique<Timed>(h.backend(),
                                                  h.drafter({{"name", "draft_model"}, {"model", o.at("model")}}));
                 }));
  r.drafters.add("marginals", drafter({kModel}, {.proposes = {Drawn::marginals}},
                                      [](const json& o, Host& h) { return std::make_unique<Marginals>(h, o); }));
  r.drafters.add("confident", drafter({}, {.proposes = {Drawn::certain}, .confidence = true}, [](const json&, Host& h) {
                   return std::make_unique<Confident>(h.drafter({{"name", "ngram"}, {"longest", 2}}));
                 }));
  r.drafters.add("pausing", drafter({kModel}, {.proposes = {Drawn::chain}, .learns = true}, [](const json& o, Host& h) {
                   return std::make_unique<Pausing>(h.backend(),
                                                    h.drafter({{"name", "draft_model"}, {"model", o.at("model")}}));
                 }));
  r.drafters.add("skipping", in_turn(1));
  r.drafters.add("alternating", in_turn(2));
  return r;
}

}  // namespace foretoken::test
