// The draft length of each sequence follows how many tokens of its past drafts were accepted, by an exponential moving
// average, in the manner of GammaTune (Gautam et al. 2025, arXiv 2504.00030): a rejection draws the average towards
// what was accepted, a draft that was accepted as a whole beyond it, since more might have been. With `confidence` a
// draft also ends where it is unsure, as GammaTune+ does. How far an accepted draft moves the average, and all default
// values, are this project's.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "drafters/drafters.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

constexpr double kLeastSure = 1e-6;  // of `confidence`: 0 would be another name of null

struct GammaOptions {
  int least = 1, most = 16, start = 4;
  double eta = 0.25, expansion = 2;
  float confidence = 0;
};

GammaOptions gamma_options(const nlohmann::json& o) {
  const nlohmann::json confidence = o.value("confidence", nlohmann::json());
  GammaOptions found{.least = o.at("least"),
                     .most = o.at("most"),
                     .start = o.at("start"),
                     .eta = o.at("eta"),
                     .expansion = o.at("expansion"),
                     .confidence = confidence.is_null() ? 0 : confidence.get<float>()};
  if (found.least > found.most)
    throw Error("the policy 'gamma_tune' has 'least' " + std::to_string(found.least) + " above 'most' " +
                std::to_string(found.most) + "; raise 'most'");
  found.start = std::clamp(found.start, found.least, found.most);
  return found;
}

class GammaTune : public LengthPolicy {
 public:
  explicit GammaTune(const GammaOptions& options) : options_(options) {}

  std::vector<Budget> budgets(std::span<const PastOnly> past) override {
    std::vector<Budget> budgets;
    for (const PastOnly& p : past) {
      const double start = options_.start - 1;
      const int length = length_of(accepted_.try_emplace(p.id, start).first->second);
      budgets.push_back({.nodes = length + 1, .depth = length, .confidence = options_.confidence});
    }
    return budgets;
  }

  void observe(const StepReport& report) override {
    for (const SequenceReport& s : report.sequences) {
      const auto found = accepted_.find(s.id);
      if (found == accepted_.end() || !s.judged) continue;
      double& average = found->second;
      const int asked = length_of(average);
      if (s.rejected)
        move(average, s.accepted);
      else if (s.depth >= asked)  // a shorter draft that was accepted does not say how long one may be
        move(average, asked + options_.expansion);
    }
  }

  void forget(const Sequence& sequence) override { accepted_.erase(sequence.id); }

 private:
  // One more level than are accepted on average: the one that is rejected.
  int length_of(double accepted) const {
    return std::clamp(int(std::lround(accepted)) + 1, options_.least, options_.most);
  }
  // It stays within what lengths can say, so that it leaves either end at once.
  void move(double& average, double accepted) const {
    average += options_.eta * (accepted - average);
    average = std::clamp(average, double(options_.least - 1), double(options_.most - 1));
  }

  GammaOptions options_;
  std::unordered_map<SequenceId, double> accepted_;  // levels of a draft, averaged
};

}  // namespace

Entry<LengthPolicy> gamma_tune() {
  return {
      .summary = "one level more than were accepted on average in past rounds of the sequence, which fade",
      .source = "arXiv 2504.00030",
      .options = {{"start", "integer", 4, "levels of the first draft, 1 to 64", false, 1, kMaxPath},
                  {"least", "integer", 1, "levels of any draft at least, 1 to 64", false, 1, kMaxPath},
                  {"most", "integer", 16, "levels of any draft at most, 1 to 64", false, 1, kMaxPath},
                  {"eta", "number", 0.25, "weight of the last round in the average; the rest is that of those before",
                   false, 0.001, 1},
                  {"expansion", "number", 2,
                   "levels as which a draft counts beyond its own where all of them were accepted", false, 1, kMaxPath},
                  {"confidence", "number", nullptr,
                   "GammaTune+: as that of the policy fixed, a draft also ends where it is less sure; null: off", true,
                   kLeastSure, 1}},
      .make = [](const nlohmann::json& o, Host&) { return std::make_unique<GammaTune>(gamma_options(o)); },
      .traits =
          [](const nlohmann::json& o, const ModelInfo&) {
            const GammaOptions given = gamma_options(o);
            return PolicyTraits({.nodes = given.most + 1, .depth = given.most, .confidence = given.confidence});
          },
      .examples = {{{"start", 2}, {"most", 5}, {"eta", 0.5}},
                   {{"least", 2}, {"most", 4}, {"expansion", 1}, {"confidence", 0.4}}}};
}

}  // namespace foretoken
