#include "experiments/python/experiments.h"

#include <set>

#include "experiments/report/check_report.h"
#include "experiments/report/report.h"
#include "experiments/report/results.h"
#include "experiments/session/check_environment.h"
#include "experiments/session/interrupt.h"
#include "experiments/sweep/rounds.h"
#include "experiments/sweep/runner.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

SweepResult run_sweep(const SweepCall& call, const Registries& registries) {
  const auto document = nlohmann::ordered_json::parse(call.document);
  const std::filesystem::path beside = call.file.parent_path();
  Workbench bench(registries);
  bench.load_plugins(document, beside);
  const std::vector<Run> runs = expand(document, call.set, bench.registries(), call.file.string());
  const SweepOptions options{call.results,
                             beside,
                             "foretoken.Sweep",
                             call.quiet,
                             call.share_baselines,
                             call.keep_going,
                             sweep_name(call.file, call.set)};
  forget_interrupts();
  const SweepOutcome outcome = call.rehearse ? rehearse_sweep(runs, bench, options) : run_sweep(runs, bench, options);
  const bool came = outcome.interrupted || interrupted();
  forget_interrupts();
  return {int(runs.size()), outcome.failed, outcome.refused, came};
}

std::string results_json(const std::vector<std::string>& files, const std::vector<std::string>& where) {
  std::vector<std::vector<Result>> all;
  for (const std::string& file : files) all.push_back(load_with_unfinished(file));
  std::vector<Result> results = joined(std::move(all));
  select(where, {&results});
  return show(results, {.format = "json"});
}

std::string check_report(const CheckCall& call, const Registries& registries, const std::function<void()>& in_process) {
  using namespace conformance;  // NOLINT(google-build-using-namespace): most of what follows
  const auto prepare = [&] {
    const Choice choice{registries, call.drafter, call.policy, call.verifier};
    Prepared p{{}, check_environment(), left_out(choice), registries.plugins, pairings(choice)};
    std::set<std::string> known;
    for (Candidate& c : candidates(choice))
      if (known.insert(c.subject.text()).second) p.candidates.push_back(std::move(c));
    in_process();
    return p;
  };
  const CheckReport report = conformance::check(prepare, {call.threads, call.seconds, call.laws});
  return check_json(report, {"foretoken.check()", report.plugins, call.laws}).dump();
}

}  // namespace foretoken
