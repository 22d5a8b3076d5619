// Chooses among drafters, the arms, by the tokens per second that each was measured to give (BanditOptions), for
// speculative decoding as BanditSpec (Hou et al. 2025, arXiv 2505.15141) has it. All sequences of a step draft by one
// arm, since a step has one time.
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "drafters/bandit_rule.h"
#include "drafters/drafters.h"
#include "drafters/parts.h"

namespace foretoken {
namespace {

constexpr const char* kWho = "the drafter 'bandit'";

class Bandit : public Combination {
 public:
  Bandit(Host& host, const nlohmann::json& drafters, const BanditOptions& options, bool categories)
      : Combination(host, drafters), options_(options), categories_(categories) {}

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees(requests.size());
    const auto [drafting, reading] = apart(requests);
    if (!drafting.empty()) {
      category_ = category_of(requests, drafting);
      drafted_ = true;
    }
    const int arm = state().arm();
    for (int k = 0; k < parts_.count(); ++k) {
      std::vector<int> asked = reading;  // all models read what their caches lack
      if (k == arm) asked.insert(asked.end(), drafting.begin(), drafting.end());
      parts_.draft(k, requests, asked, trees);
      for (const int i : asked) parts_.returns(requests[std::size_t(i)], k, trees[std::size_t(i)]);
    }
    parts_.bare_where_pages_lacked(requests, trees);
    return trees;
  }
  void observe_step(const StepReport& report) override {
    Combination::observe_step(report);
    if (!std::exchange(drafted_, false)) return;
    StepYield yield = yield_of(report);
    if (yield.prompts) yield.seconds = 0;
    state().add(yield, options_);
  }
  std::string notice() const override {
    std::string all = Combination::notice();
    for (const auto& [category, state] : states_)
      if (state.blind(options_))
        return all + (all.empty() ? "" : "; ") + "the drafter 'bandit' " + state.unmeasured() + " of its drafters";
    return all;
  }

 private:
  static constexpr std::size_t kMostCategories = 256;

  // That of all these requests; "" where they differ, or where all categories are one.
  std::string category_of(std::span<const DraftRequest> requests, std::span<const int> drafting) const {
    if (!categories_) return "";
    const auto of = [&](int i) -> const std::string& { return requests[std::size_t(i)].sequence->category; };
    const std::string& first = of(drafting.front());
    const bool one = std::ranges::all_of(drafting, [&](int i) { return of(i) == first; });
    return one && (states_.contains(first) || states_.size() < kMostCategories) ? first : "";
  }
  BanditState& state() {
    return states_.try_emplace(category_, parts_.count(), std::uint32_t(states_.size())).first->second;
  }

  BanditOptions options_;
  bool categories_;
  std::map<std::string, BanditState> states_;
  std::string category_;  // of the last step that drafted
  bool drafted_ = false;
};

std::vector<Option> options_of_bandit() {
  std::vector<Option> options{drafters_option("one of them drafts in each step")};
  std::ranges::copy(bandit_options(), std::back_inserter(options));
  options.push_back({"categories", "boolean", false,
                     "whether steps whose sequences are all of one category have a bandit of their own"});
  return options;
}

}  // namespace

Entry<Drafter> bandit() {
  const nlohmann::json lookup{{"name", "ngram"}, {"longest", 2}, {"shortest", 1}}, model{{"name", "draft_model"}},
      tree{{"name", "draft_tree"}, {"shape", {2, 1}}};
  return {.summary = "the drafter of several that gives the most tokens per second, as measured",
          .source = "arXiv 2505.15141",
          .options = options_of_bandit(),
          .make =
              [](const nlohmann::json& o, Host& host) {
                return std::make_unique<Bandit>(host, o.at("drafters"), read_bandit(o, kWho),
                                                o.at("categories").get<bool>());
              },
          .traits =
              [](const nlohmann::json& o, const ModelInfo&) {
                expect_parts(o);
                (void)read_bandit(o, kWho);
                return Needs{.learns = true};
              },
          .examples = {{{"drafters", {lookup, model}}, {"trial", 2}, {"explore", 1}},
                       {{"drafters", {model, tree, lookup}},
                        {"rule", "ucb"},
                        {"exploration", 1},
                        {"categories", true},
                        {"trial", 1},
                        {"seed", 7}}},
          .unite = unite_parts};
}

}  // namespace foretoken
