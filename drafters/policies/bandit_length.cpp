// Chooses among draft lengths, the arms, by the tokens per second that each was measured to give (BanditSpec, Hou et
// al. 2025, arXiv 2505.15141). All sequences of a step have one length, since a step has one time; each power of two of
// the batch has a bandit of its own, since what pays in a small batch loses in a large one.
#include <algorithm>
#include <bit>
#include <iterator>
#include <map>

#include "drafters/bandit_rule.h"
#include "drafters/drafters.h"
#include "drafters/policies/step_costs.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr const char* kWho = "the policy 'bandit_length'";

// The lengths, checked.
std::vector<int> lengths_of(const nlohmann::json& o) {
  std::vector<int> lengths;
  for (const nlohmann::json& length : o.at("lengths")) {
    if (!length.is_number_integer() || length < 0 || length > kMaxPath)
      throw Error(std::string(kWho) + " has the length " + length.dump() + "; 'lengths' lists integers from 0 to " +
                  std::to_string(kMaxPath));
    lengths.push_back(length.get<int>());
  }
  if (lengths.size() < 2) throw Error(std::string(kWho) + " needs two 'lengths' or more to choose from");
  return lengths;
}

class BanditLength : public LengthPolicy {
 public:
  BanditLength(std::vector<int> lengths, int width, const BanditOptions& options)
      : lengths_(std::move(lengths)), width_(width), options_(options) {}

  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    scale_ = std::bit_width(unsigned(past.size()));
    length_ = lengths_[std::size_t(state().arm())];
    return std::vector<Budget>(past.size(), level_budget(length_, width_));
  }
  void observe(const StepReport& report) override {
    if (std::ranges::none_of(report.sequences, &SequenceReport::judged)) return;
    StepYield yield = yield_of(report);
    // Of all bandits together: the batch may have changed, and with it the bandit.
    if (!timed_.tells(report, length_ > 0)) yield.seconds = 0;
    state().add(yield, options_);
  }
  std::string notice() const override {
    for (const auto& [scale, state] : states_)
      if (state.blind(options_)) return std::string(kWho) + " " + state.unmeasured() + " of its lengths";
    return {};
  }

 private:
  BanditState& state() {
    return states_.try_emplace(scale_, int(lengths_.size()), std::uint32_t(scale_)).first->second;
  }

  std::vector<int> lengths_;
  int width_;
  BanditOptions options_;
  int scale_ = 0;   // of the last step's batch: its bits
  int length_ = 0;  // of the last step
  TimedSteps timed_;
  std::map<int, BanditState> states_;
};

std::vector<Option> options_of_lengths() {
  std::vector<Option> options{{"lengths", "list", nlohmann::json::array({0, 2, 4, 8}),
                               "the draft lengths to choose from, 0 to 64; 0: no draft"},
                              {"width", "integer", 1, "nodes for each level of a draft tree", false, 1, 64}};
  std::ranges::copy(bandit_options(), std::back_inserter(options));
  return options;
}

}  // namespace

Entry<LengthPolicy> bandit_length() {
  return {.summary = "the one of several draft lengths that gives the most tokens per second, as measured",
          .source = "arXiv 2505.15141",
          .options = options_of_lengths(),
          .make =
              [](const nlohmann::json& o, Host&) {
                return std::make_unique<BanditLength>(lengths_of(o), o.at("width").get<int>(), read_bandit(o, kWho));
              },
          .traits =
              [](const nlohmann::json& o, const ModelInfo&) {
                (void)read_bandit(o, kWho);
                const int most = std::ranges::max(lengths_of(o));
                return PolicyTraits(level_budget(most, o.at("width").get<int>()), /*learning=*/true);
              },
          .examples = {{{"lengths", {0, 1, 4}}, {"trial", 1}, {"explore", 1}},
                       {{"lengths", {2, 3}},
                        {"width", 2},
                        {"rule", "ucb"},
                        {"exploration", 1},
                        {"explore", 2},
                        {"trial", 2},
                        {"seed", 7}}}};
}

}  // namespace foretoken
