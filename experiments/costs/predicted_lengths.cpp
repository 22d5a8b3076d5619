#include "experiments/costs/predicted_lengths.h"

#include <algorithm>
#include <filesystem>

#include "experiments/costs/predict.h"
#include "experiments/report/summary.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/jobs.h"
#include "experiments/sweep/sweep.h"
#include "foretoken_version.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using nlohmann::json;

// What the costs know.
int largest_of(const CostModel& costs, int StepShape::* what) {
  int most = 0;
  for (const CostedStep& s : costs.steps()) most = std::max(most, s.shape.*what);
  return most;
}

std::vector<int> batches_of(const PredictedLengthsOptions& from, const CostModel& costs) {
  if (!from.batches.empty()) return from.batches;
  std::vector<int> found;
  for (int batch = 1; batch <= largest_of(costs, &StepShape::batch); batch *= 2) found.push_back(batch);
  return found;
}

std::vector<int> lengths_to_try(const PredictedLengthsOptions& from, const CostModel& costs) {
  if (!from.lengths.empty()) return from.lengths;
  std::vector<int> found;
  for (int length = 1; length <= largest_of(costs, &StepShape::depth); ++length) found.push_back(length);
  return found;
}

void expect_rising(const std::vector<int>& values, const std::string& option) {
  for (std::size_t i = 1; i < values.size(); ++i)
    if (values[i] <= values[i - 1])
      throw Error(option + " has " + std::to_string(values[i]) + " after " + std::to_string(values[i - 1]) +
                  "; give each once, rising");
}

// The first run, which stands for all: a batch of one, so that its prompts are those that it names.
json ground_of(const std::vector<Run>& runs) {
  if (runs.empty()) throw Error("the document has no run to choose lengths for");
  const json ground = tuning_ground(runs.front().document);
  for (const Run& run : runs) {
    const json changes = json::diff(ground, tuning_ground(run.document));
    if (!changes.empty())
      throw Error("the runs of the document differ in " + changes.front().at("path").get<std::string>() +
                  ", and lengths are those of one target and drafter; take that axis out of it, and choose with --set");
  }
  json run = runs.front().document;
  run["engine"]["batch"] = 1;
  return run;
}

json with_chain(json run, int batch, int length) {
  run["engine"]["batch"] = batch;
  run["policy"] = {{"name", "fixed"}, {"length", length}, {"nodes", nullptr}, {"confidence", nullptr}};
  return run;
}

class LengthPredictor {
 public:
  LengthPredictor(const json& run, const CostsFile& costs, const KnownAcceptance& acceptance, Workbench& bench,
                  const std::filesystem::path& beside)
      : run_(run),
        costs_(costs.costs),
        acceptance_(acceptance),
        bench_(bench),
        beside_(beside),
        own_(predicted_requests(run, bench, beside)) {}

  TunedChoice best(int batch, const std::vector<int>& lengths) const {
    std::vector<PredictedRequest> requests = own_;
    while (requests.size() < kRequestsASlot * std::size_t(batch))
      requests.push_back(requests[requests.size() - own_.size()]);
    std::vector<TunedCandidate> all;
    for (const int length : lengths) {
      const Prediction p =
          prediction_of(with_chain(run_, batch, length), requests, costs_, &acceptance_, bench_, beside_);
      all.push_back({.length = length, .speedup = p.speedup, .beyond = p.beyond});
    }
    const auto slower = [](const TunedCandidate& a, const TunedCandidate& b) {
      return a.speedup.value < b.speedup.value;
    };
    return tuned_choice(batch, *std::ranges::max_element(all, slower), all, all.size());
  }

 private:
  const json& run_;
  const CostModel& costs_;
  const KnownAcceptance& acceptance_;
  Workbench& bench_;
  const std::filesystem::path& beside_;
  std::vector<PredictedRequest> own_;
};

TunedOrigin origin_of_predicted(const json& run, const CostsFile& costs, const PredictedLengthsOptions& from,
                                bool beyond) {
  json members{{"machine", costs.machine()},
               {"version", kVersion},
               {"commit", kCommit},
               {"made_from", {{"costs", from.costs}, {"acceptance", from.acceptance}, {"run", from.file}}}};
  if (const json differ = costs.differences(run); !differ.empty()) members["costs_differ"] = differ;
  return {.run = run,
          .members = std::move(members),
          .length = "the shortest whose predicted speedup is within 2 % of the fastest one's",
          .candidates = "lengths that were compared",
          .note = "Predicted for " + costs.machine() + " from " + costs.file + ", with the acceptance " +
                  from.acceptance + ", and not measured." + costs.differences_text({run}) +
                  (beyond ? " ~: of steps outside of those whose costs are known." : "")};
}

}  // namespace

Tuned predicted_lengths(const PredictedLengthsOptions& from, const TuneOptions& options) {
  expect_rising(from.batches, "--batches");
  expect_rising(from.lengths, "--lengths");
  const CostsFile costs = CostsFile::read(from.costs);
  const AcceptanceSource acceptance = AcceptanceSource::read(from.acceptance);
  const std::filesystem::path file = from.file, beside = file.parent_path();
  const auto document = read_document(file);
  Workbench bench(from.plugins);
  bench.load_plugins(document, beside);
  const json run = with_chain(ground_of(expand(document, from.set, bench.registries(), file.string())), 1, 1);
  const std::optional<KnownAcceptance> known =
      acceptance.of(run, expect_predictable(run, costs, bench.registries(), beside));
  if (!known) throw Error("no length can be chosen where nothing is known of acceptance; give --acceptance");
  const LengthPredictor predictor(run, costs, *known, bench, beside);
  const std::vector<int> lengths = lengths_to_try(from, costs.costs), batches = batches_of(from, costs.costs);
  expect_predictable(with_chain(run, batches.back(), lengths.back()), costs, bench.registries(), beside);
  std::vector<TunedChoice> choices;
  for (const int batch : batches) choices.push_back(predictor.best(batch, lengths));
  const bool beyond = std::ranges::any_of(choices, [](const TunedChoice& c) { return c.fastest.beyond; });
  return tuned_of(choices, origin_of_predicted(run, costs, from, beyond), options);
}

}  // namespace foretoken
