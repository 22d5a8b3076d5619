#include "experiments/costs/predict.h"

#include <algorithm>

#include <spdlog/spdlog.h>

#include "experiments/conformance/scenario.h"
#include "experiments/report/report.h"
#include "experiments/report/results.h"
#include "experiments/report/terminal.h"
#include "experiments/session/arrival_rate.h"
#include "experiments/session/measured_pair.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/alternation.h"
#include "experiments/sweep/jobs.h"
#include "experiments/sweep/sweep.h"
#include "kernels/error.h"
#include "kernels/reference/reference_backend.h"

namespace foretoken {
namespace {

using nlohmann::json;

json pair_in(const CostsFile& costs) {
  json found = json::object();
  for (const char* part : {"target", "drafter"})
    if (costs.document.contains(part)) found[part] = costs.document[part];
  return found;
}

double off(double predicted, double measured) { return std::abs(predicted / measured - 1); }

CostError error_over(std::vector<double> errors) {
  std::erase_if(errors, [](double e) { return std::isnan(e); });
  if (errors.empty()) return {kUnknown, kUnknown};
  return {median(errors), *std::ranges::max_element(errors)};
}

}  // namespace

std::vector<PredictedRequest> predicted_requests(const json& run, Workbench& bench,
                                                 const std::filesystem::path& beside) {
  std::vector<PredictedRequest> found;
  for (const Job& job : jobs_of(run, bench, beside)) {
    if (job.after >= 0)
      throw Error("a later turn of a conversation has a prompt that is not known before; set '/workload/turns' to 1");
    found.push_back({int(job.request.prompt.size()), job.request.limits.max_new_tokens});
  }
  return found;
}

Budget expect_predictable(const json& run, const CostsFile& costs, const Registries& registries,
                          const std::filesystem::path& beside) {
  expect_pair(pair_in(costs), run, costs.file);
  if (const std::string key = rate_key_of(run); !key.empty())
    throw Error("an open loop ('" + key + "') has no speedup to predict");
  const PolicyTraits policy = registries.policies.traits(policy_of(run, registries, beside), ModelInfo());
  if (policy.learns)
    throw Error("the policy '" + run.at("policy").at("name").get<std::string>() +
                "' chooses lengths by what it measures, so nothing is known before");
  if (policy.most.confidence > 0)
    throw Error("the policy ends drafts by their confidence, of which neither rates nor results say how often");
  const int nodes = policy.most.or_root().nodes, batch = run.at("engine").at("batch"),
            rows = run.at("engine").at("step_rows");
  if (rows != 0 && rows < batch * std::int64_t(nodes))
    throw Error("'/engine/step_rows' is " + std::to_string(rows) + ", which cuts drafts of " + std::to_string(nodes) +
                " nodes in a batch of " + std::to_string(batch) + ", and cut ones are not predicted; set it to 0");
  if (!costs.costs.drafts() && policy.most.depth > 0)
    throw Error(costs.file + " has no step with a draft; calibrate with the drafter");
  return policy.most.or_root();
}

Prediction prediction_of(const json& run, std::span<const PredictedRequest> requests, const CostModel& costs,
                         const KnownAcceptance* acceptance, Workbench& bench, const std::filesystem::path& beside) {
  const Registries& registries = bench.registries();
  ReferenceBackend backend;
  const conformance::Models models = conformance::table_models({.vocab = 2});
  conformance::BareHost bare(backend, models, registries);
  const json policy = policy_of(run, registries, beside);
  return predicted(
      costs, requests, run.at("engine").at("batch").get<int>(),
      [&] { return registries.policies.make(policy, bare.host); }, acceptance);
}

PredictedCell predict(const json& run, const json& axes, const CostsFile& costs, const AcceptanceSource& acceptance,
                      Workbench& bench, const std::filesystem::path& beside) {
  PredictedCell cell{.run = run, .axes = axes};
  cell.refusal = failure_of([&] {
    const Budget most = expect_predictable(run, costs, bench.registries(), beside);
    const std::optional<KnownAcceptance> known = acceptance.of(run, most);
    cell.prediction = prediction_of(run, predicted_requests(run, bench, beside), costs.costs, known ? &*known : nullptr,
                                    bench, beside);
  });
  return cell;
}

PredictionErrors errors_of(const std::vector<PredictedCell>& cells) {
  std::vector<double> speedup, tau, speed, plain;
  PredictionErrors found;
  for (const PredictedCell& c : cells) {
    if (!c.refusal.empty() || !c.measured || c.measured->failed()) continue;
    ++found.cells;
    const Prediction& p = c.prediction;
    speedup.push_back(off(p.speedup.value, c.measured->speedup.value));
    tau.push_back(off(p.tau.value, c.measured->tau.value));
    speed.push_back(off(p.tokens_per_second.value, c.measured->tokens_per_second.value));
    plain.push_back(off(p.plain_tokens_per_second, c.measured->baseline.tokens_per_second));
  }
  found.speedup = error_over(std::move(speedup)), found.tau = error_over(std::move(tau));
  found.tokens_per_second = error_over(std::move(speed));
  found.plain_tokens_per_second = error_over(std::move(plain));
  return found;
}

int run_predict(const PredictOptions& options) {
  const CostsFile costs = CostsFile::read(options.costs);
  const std::filesystem::path file = options.file, beside = options.compare ? "" : file.parent_path();
  Workbench bench(options.plugins);
  const AcceptanceSource acceptance = AcceptanceSource::read(options.acceptance);
  std::vector<PredictedCell> cells;
  if (options.compare) {
    std::vector<Result> results = load_results(file);
    select(options.where, {&results});
    for (const Result* result : latest(results)) {
      PredictedCell& cell = cells.emplace_back(predict(result->run, result->axes, costs, acceptance, bench, beside));
      cell.measured = summarize(*result);
    }
  } else {
    const auto document = read_document(file);
    bench.load_plugins(document, beside);
    for (const Run& run : expand(document, options.set, bench.registries(), file.string()))
      cells.push_back(predict(run.document, run.axes, costs, acceptance, bench, beside));
  }
  if (cells.empty()) throw Error(file.string() + " has no run to predict");
  print(prediction_report(cells, costs, options));
  const bool none = std::ranges::all_of(cells, [](const PredictedCell& c) { return !c.refusal.empty(); });
  return none ? 1 : 0;
}

}  // namespace foretoken
