#include "experiments/conformance/check.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <set>

#include "experiments/conformance/statistics.h"
#include "experiments/conformance/workers.h"

namespace foretoken {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PluginFile, path, hash)

namespace conformance {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LawReport, law, subject, ruling, reason, scenarios)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Job, report, number, scenario)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Agenda, subjects, proposing, reports, jobs, left_out, pairings, plugins, level)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, holds, what, why, where, measure, cases, accepted, rejected, cut_to, seen)

namespace {

using Clock = std::chrono::steady_clock;
using Ruling = LawReport::Ruling;

// Messages may hold any bytes.
std::string dumped(const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace); }

// Adds the result of one scenario to the report of its law.
void fold(const std::string& scenario, const Finding& f, double seconds, LawReport& r) {
  const bool p_value = r.law == "sampled";
  ++r.ran;
  r.cases += f.cases, r.accepted += f.accepted, r.rejected += f.rejected, r.seconds += seconds;
  if (p_value && (r.ran == 1 || f.measure < r.measure)) r.where = f.where;
  r.measure = p_value ? std::min(r.ran == 1 ? 1.0 : r.measure, f.measure) : std::max(r.measure, f.measure);
  for (const auto& [what, n] : f.seen) r.seen[what] += n;
  if (f.cut_to > 0) r.count_cut(1, f.cut_to);
  if (f.seen.contains("refused") && f.seen.at("refused") > 0) r.notes.push_back(f.what);
  if ((p_value && f.why.empty()) || f.holds || r.ruling == Ruling::broken) return;
  r.ruling = Ruling::broken;
  r.reason = "(" + scenario + ") " + f.why;
}

Finding failed(const std::string& why) {
  Finding f;
  f.fail(why);
  return f;
}

Finding run_case(const Job& job) {
  try {
    return job.run();
  } catch (const std::exception& e) {
    return failed(e.what());
  } catch (...) {
    return failed("it threw something that is not a std::exception");
  }
}

void take(const Answer& answer, Agenda& agenda) {
  const Job& job = agenda.jobs[answer.task];
  LawReport& r = agenda.reports[job.report];
  if (!answer.late)
    return fold(job.scenario, answer.failure.empty() ? finding_from(answer.text) : failed(answer.failure),
                answer.seconds, r);
  if (r.ruling != Ruling::holds) return;
  r.ruling = Ruling::not_shown;
  r.reason = "(" + job.scenario + ") " + answer.failure;
}

// The agenda of the first process, with what was found until the time was up.
Agenda run(const std::function<Prepared()>& prepare, const HowToCheck& how) {
  constexpr double kOfSome = 60, kOfAll = 1800;
  constexpr std::size_t kSome = 15;        // one drafter with every verifier, or one verifier with every drafter
  const auto service = [&]() -> Service {  // of a process: all scenarios, by their number
    const auto agenda = std::make_shared<const Agenda>(agenda_of(prepare(), how.laws));
    return {line_of(*agenda), [agenda](std::size_t job) { return line_of(run_case(agenda->jobs.at(job))); }};
  };
  Workers workers(how.threads, how.scenario_seconds > 0 ? how.scenario_seconds : std::max(kOfSome, how.seconds),
                  service);
  Agenda agenda = agenda_from(workers.greeting());
  const double seconds = how.seconds > 0 ? how.seconds : agenda.subjects.size() <= kSome ? kOfSome : kOfAll;
  double worked = 0;
  workers.run(
      agenda.jobs.size(), [&] { return worked < seconds * how.threads; },
      [&](const Answer& answer) {
        worked += answer.seconds;
        take(answer, agenda);
      });
  return agenda;
}

// Holm's correction over all sampled laws.
void correct(Agenda& agenda) {
  std::vector<LawReport*> tests;
  std::vector<double> p_values;
  for (LawReport& r : agenda.reports)
    if (r.law == "sampled" && r.ran > 0) tests.push_back(&r), p_values.push_back(r.measure);
  const std::vector<double> adjusted = holm_adjusted(p_values);
  for (std::size_t i = 0; i < tests.size(); ++i) {
    tests[i]->measure = adjusted[i];
    if (adjusted[i] > agenda.level || tests[i]->ruling == Ruling::broken)
      continue;  // a scenario that failed gave its own reason
    tests[i]->ruling = Ruling::broken;
    tests[i]->reason = "a joint chi-square of " + std::to_string(tests[i]->cases) +
                       " outputs gives p = " + std::to_string(p_values[i]) + ", " + std::to_string(adjusted[i]) +
                       " after Holm's correction: " + tests[i]->where;
  }
}

void expect_known(const std::vector<std::string>& laws) {
  std::vector<std::string> known;
  for (const KitLaw& law : kit_laws()) known.push_back(law.name);
  for (const std::string& name : laws)
    if (std::ranges::find(known, name) == known.end()) unknown_name("law", name, known);
}

bool ever_drafted(const std::string& subject, const std::vector<LawReport>& laws) {
  return std::ranges::any_of(laws, [&](const LawReport& r) {
    return r.subject == subject && r.law != "limits" && r.law != "device" && r.accepted + r.rejected > 0;
  });
}

}  // namespace

const char* name_of(LawReport::Ruling r) {
  constexpr const char* kNames[] = {"holds", "broken", "does not apply", "not shown"};
  return kNames[int(r)];
}

void LawReport::count_cut(int scenarios, int depth) {
  if (scenarios == 0) return;
  least_depth = cut == 0 ? depth : std::min(least_depth, depth);
  cut += scenarios;
}

Agenda agenda_of(const Prepared& prepared, const std::vector<std::string>& only) {
  Environment environment = prepared.environment;
  environment.sampled_tests = int(std::ranges::count_if(
      prepared.candidates, [](const Candidate& c) { return c.soundness.promise.rfind("exact", 0) == 0; }));
  Agenda a{.left_out = prepared.left_out,
           .pairings = prepared.pairings,
           .plugins = prepared.plugins,
           .level = environment.level};
  std::set<std::array<std::string, 3>> known;  // scenarios not of the whole candidate: law, name, concern
  for (const KitLaw& law : kit_laws())
    for (const Candidate& c : prepared.candidates) {
      const bool wanted = only.empty() || std::ranges::find(only, law.name) != only.end();
      LawReport r{.law = law.name,
                  .subject = c.subject.text(),
                  .reason = wanted ? law.inapplicable(c, environment) : "it was not run: other laws were named"};
      bool elsewhere = false;
      if (r.reason.empty())
        for (LawCase& scenario : law.cases(c, environment)) {
          if (!scenario.concerns.empty() && !known.insert({law.name, scenario.scenario, scenario.concerns}).second)
            elsewhere = true;
          else
            a.jobs.push_back({a.reports.size(), r.scenarios++, std::move(scenario.scenario), std::move(scenario.run)});
        }
      if (elsewhere && r.scenarios == 0) r.reason = "what it concerns is tested in another combination";
      if (!r.reason.empty()) r.ruling = Ruling::inapplicable;
      a.reports.push_back(std::move(r));
    }
  std::ranges::stable_sort(a.jobs, {}, &Job::number);
  for (const Candidate& c : prepared.candidates) {
    a.subjects.push_back(c.subject.text());
    if (!c.needs.proposes.empty()) a.proposing.push_back(c.subject.text());
  }
  return a;
}

std::string line_of(const Agenda& agenda) { return dumped(agenda); }
Agenda agenda_from(const std::string& line) { return json::parse(line).get<Agenda>(); }

std::string line_of(const Finding& finding) { return dumped(finding); }
Finding finding_from(const std::string& line) {
  json j = json::parse(line);
  if (j["measure"].is_null()) j["measure"] = std::numeric_limits<double>::quiet_NaN();  // JSON has none, nor infinity
  return j.get<Finding>();
}

CheckReport check(const std::function<Prepared()>& prepare, const HowToCheck& how) {
  const auto start = Clock::now();
  expect_known(how.laws);
  Agenda agenda = run(prepare, how);
  correct(agenda);
  CheckReport report{.subjects = agenda.subjects,
                     .left_out = agenda.left_out,
                     .pairings = agenda.pairings,
                     .plugins = agenda.plugins,
                     .laws = std::move(agenda.reports),
                     .of_all_laws = how.laws.empty(),
                     .level = agenda.level};
  for (LawReport& r : report.laws) {
    if (r.ruling == Ruling::holds && r.ran < r.scenarios) {
      r.ruling = Ruling::not_shown;
      r.reason = std::to_string(r.scenarios - r.ran) + " of its " + std::to_string(r.scenarios) +
                 " scenarios did not start in time; --seconds gives more";
    }
    if (r.ruling == Ruling::broken)
      report.sentences.push_back("the law '" + r.law + "' is broken by " + r.subject + ": " + r.reason);
    if (r.ruling == Ruling::not_shown)
      report.sentences.push_back("the law '" + r.law + "' was not shown of " + r.subject + ": " + r.reason);
  }
  if (std::ranges::all_of(report.laws, [](const LawReport& r) { return r.ruling == Ruling::inapplicable; }))
    report.sentences.push_back("nothing was shown: none of the named laws applies to what was named");
  for (const std::string& subject : agenda.proposing)
    if (how.laws.empty() && !ever_drafted(subject, report.laws))
      report.sentences.push_back(subject +
                                 ": no draft of this drafter was tested in any scenario, so nothing was shown of it");
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

CheckReport check(const std::vector<Candidate>& candidates, const Environment& environment, const HowToCheck& how) {
  return check([&]() -> Prepared { return {candidates, environment}; }, how);
}

}  // namespace conformance
}  // namespace foretoken
