#include "experiments/conformance/check.h"

#include <algorithm>
#include <chrono>

#include "experiments/conformance/agenda.h"
#include "experiments/conformance/statistics.h"
#include "experiments/conformance/workers.h"

namespace foretoken::conformance {
namespace {

using Clock = std::chrono::steady_clock;

// Adds the result of one scenario to the report of its law.
void fold(const std::string& scenario, const Finding& f, double seconds, bool p_value, LawReport& r) {
  ++r.ran;
  r.cases += f.cases, r.accepted += f.accepted, r.rejected += f.rejected, r.seconds += seconds;
  if (p_value && (r.ran == 1 || f.measure < r.measure)) r.where = f.where;
  r.measure = p_value ? std::min(r.ran == 1 ? 1.0 : r.measure, f.measure) : std::max(r.measure, f.measure);
  for (const auto& [what, n] : f.seen) r.seen[what] += n;
  if (f.cut_to > 0) r.count_cut(1, f.cut_to);
  if (f.seen.contains("refused") && f.seen.at("refused") > 0) r.notes.push_back(f.what);
  if ((p_value && f.why.empty()) || f.holds || r.ruling == LawReport::Ruling::broken) return;
  r.ruling = LawReport::Ruling::broken;
  r.reason = "(" + scenario + ") " + f.why;
}

Finding run_case(const Job& job) {
  try {
    return job.run();
  } catch (const std::exception& e) {
    Finding f;
    f.fail(e.what());
    return f;
  } catch (...) {
    Finding f;
    f.fail("it threw something that is not a std::exception");
    return f;
  }
}

// What a process runs: all scenarios, by their number.
Service service(const std::function<Prepared()>& prepare, const std::vector<std::string>& laws) {
  const auto agenda = std::make_shared<const Agenda>(agenda_of(prepare(), laws));
  return {line_of(*agenda), [agenda](std::size_t job) { return line_of(run_case(agenda->jobs.at(job))); }};
}

class Session {
 public:
  Session(const std::function<Prepared()>& prepare, HowToCheck how) : how_(std::move(how)) {
    constexpr double kOfSome = 60, kOfAll = 1800;
    constexpr std::size_t kSome = 15;  // one drafter with every verifier, or one verifier with every drafter
    const double longest = std::max(kOfSome, how_.seconds);
    Workers workers(how_.threads, how_.scenario_seconds > 0 ? how_.scenario_seconds : longest,
                    [&] { return service(prepare, how_.laws); });
    agenda_ = agenda_from(workers.greeting());
    const double seconds = how_.seconds > 0 ? how_.seconds : agenda_.subjects.size() <= kSome ? kOfSome : kOfAll;
    double worked = 0;
    workers.run(
        agenda_.jobs.size(), [&] { return worked < seconds * how_.threads; },
        [&](const Answer& answer) {
          worked += answer.seconds;
          take(answer);
        });
  }

  // Holm's correction over all sampled laws.
  void correct() {
    const double level = agenda_.level;
    std::vector<LawReport*> tests;
    std::vector<double> p_values;
    for (LawReport& r : agenda_.reports)
      if (r.law == "sampled" && r.ran > 0) tests.push_back(&r), p_values.push_back(r.measure);
    const std::vector<double> adjusted = holm_adjusted(p_values);
    for (std::size_t i = 0; i < tests.size(); ++i) {
      tests[i]->measure = adjusted[i];
      if (adjusted[i] > level || tests[i]->ruling == LawReport::Ruling::broken)
        continue;  // a scenario that failed gave its own reason
      tests[i]->ruling = LawReport::Ruling::broken;
      tests[i]->reason = "a joint chi-square of " + std::to_string(tests[i]->cases) +
                         " outputs gives p = " + std::to_string(p_values[i]) + ", " + std::to_string(adjusted[i]) +
                         " after Holm's correction: " + tests[i]->where;
    }
  }

  std::vector<LawReport> reports() {
    for (LawReport& r : agenda_.reports) {
      if (r.ruling != LawReport::Ruling::holds || r.ran == r.scenarios) continue;
      r.ruling = LawReport::Ruling::not_shown;
      r.reason = std::to_string(r.scenarios - r.ran) + " of its " + std::to_string(r.scenarios) +
                 " scenarios did not start in time; --seconds gives more";
    }
    return std::move(agenda_.reports);
  }

  const Agenda& agenda() const { return agenda_; }

 private:
  void take(const Answer& answer) {
    const Job& job = agenda_.jobs[answer.task];
    LawReport& r = agenda_.reports[job.report];
    if (answer.late) {
      if (r.ruling == LawReport::Ruling::holds)
        r.ruling = LawReport::Ruling::not_shown, r.reason = "(" + job.scenario + ") " + answer.failure;
      return;
    }
    Finding f;
    if (answer.failure.empty())
      f = finding_from(answer.text);
    else
      f.fail(answer.failure);
    fold(job.scenario, f, answer.seconds, r.law == "sampled", r);
  }

  HowToCheck how_;
  Agenda agenda_;
};

void expect_known(const std::vector<std::string>& laws) {
  std::vector<std::string> known;
  for (const KitLaw& law : kit_laws()) known.push_back(law.name);
  for (const std::string& name : laws)
    if (std::ranges::find(known, name) == known.end()) unknown_name("law", name, known);
}

// The message about a drafter none of whose drafts was tested; empty if one was.
std::string never_drafted(const std::string& subject, const std::vector<LawReport>& laws) {
  for (const LawReport& r : laws)
    if (r.subject == subject && r.law != "limits" && r.law != "device" && r.accepted + r.rejected > 0) return "";
  return subject + ": no draft of this drafter was tested in any scenario, so nothing was shown of it";
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

CheckReport check(const std::function<Prepared()>& prepare, const HowToCheck& how) {
  const auto start = Clock::now();
  expect_known(how.laws);
  Session session(prepare, how);
  session.correct();
  const Agenda& agenda = session.agenda();
  CheckReport report;
  report.subjects = agenda.subjects, report.left_out = agenda.left_out, report.pairings = agenda.pairings;
  report.plugins = agenda.plugins;
  report.laws = session.reports();
  report.level = agenda.level, report.of_all_laws = how.laws.empty();
  for (const LawReport& r : report.laws) {
    if (r.ruling == LawReport::Ruling::broken)
      report.sentences.push_back("the law '" + r.law + "' is broken by " + r.subject + ": " + r.reason);
    if (r.ruling == LawReport::Ruling::not_shown)
      report.sentences.push_back("the law '" + r.law + "' was not shown of " + r.subject + ": " + r.reason);
  }
  if (std::ranges::all_of(report.laws, [](const LawReport& r) { return r.ruling == LawReport::Ruling::inapplicable; }))
    report.sentences.push_back("nothing was shown: none of the named laws applies to what was named");
  for (const std::string& subject : agenda.proposing) {
    if (!how.laws.empty()) break;
    const std::string sentence = never_drafted(subject, report.laws);
    if (!sentence.empty()) report.sentences.push_back(sentence);
  }
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

CheckReport check(const std::vector<Candidate>& candidates, const Environment& environment, const HowToCheck& how) {
  return check([&]() -> Prepared { return {candidates, environment}; }, how);
}

}  // namespace foretoken::conformance
