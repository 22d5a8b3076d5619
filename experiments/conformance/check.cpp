#include "experiments/conformance/check.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "experiments/conformance/configurations.h"
#include "experiments/conformance/statistics.h"
#include "kernels/error.h"

namespace foretoken::conformance {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// All configs that the kit tries, those of one name, or the given one.
template <class T> std::vector<json> chosen(const Registry<T>& registry, const json& given) {
  if (given.is_null()) return configurations(registry);
  if (given.size() > 1) return {configured(registry, given)};
  return configurations(registry, given.at("name").template get<std::string>());
}

// One scenario to run.
struct Job {
  std::size_t report;  // index of its LawReport
  int number;          // of the scenario
  LawCase scenario;
};

// Adds the result of one scenario to the report of its law.
void fold(const LawCase& scenario, const Finding& f, double seconds, bool p_value, LawReport& r) {
  ++r.ran;
  r.cases += f.cases, r.accepted += f.accepted, r.rejected += f.rejected, r.seconds += seconds;
  r.measure = p_value ? std::min(r.ran == 1 ? 1.0 : r.measure, f.measure) : std::max(r.measure, f.measure);
  for (const auto& [what, n] : f.seen) r.seen[what] += n;
  if (f.cut_to > 0) r.count_cut(1, f.cut_to);
  if (f.seen.contains("refused") && f.seen.at("refused") > 0) r.notes.push_back(f.what);
  if ((p_value && f.why.empty()) || f.holds || r.ruling == LawReport::Ruling::broken) return;
  r.ruling = LawReport::Ruling::broken;
  r.reason = "(" + scenario.scenario + ") " + f.why;
}

Finding run_case(const LawCase& scenario) {
  try {
    return scenario.run();
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

class Session {
 public:
  Session(const std::vector<Candidate>& candidates, const Environment& environment,
          const std::vector<std::string>& only) {
    for (const KitLaw& law : kit_laws()) {
      const bool wanted = only.empty() || std::ranges::find(only, law.name) != only.end();
      for (const Candidate& c : candidates) add(law, c, environment, wanted);
    }
    // Breadth first: when the time is up, every law has run some scenarios.
    std::ranges::stable_sort(jobs_, {}, &Job::number);
  }

  void run(int threads, double seconds, Clock::time_point start) {
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
      for (std::size_t i = next++; i < jobs_.size() && since(start) < seconds; i = next++) {
        const auto begin = Clock::now();
        const Finding f = run_case(jobs_[i].scenario);
        const std::scoped_lock lock(books_);
        LawReport& r = reports_[jobs_[i].report];
        fold(jobs_[i].scenario, f, since(begin), r.law == "sampled", r);
      }
    };
    std::vector<std::jthread> helpers;
    for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
    work();
  }

  // Holm's correction over all sampled laws.
  void correct(double level) {
    std::vector<LawReport*> tests;
    std::vector<double> p_values;
    for (LawReport& r : reports_)
      if (r.law == "sampled" && r.ran > 0) tests.push_back(&r), p_values.push_back(r.measure);
    const std::vector<double> adjusted = holm_adjusted(p_values);
    for (std::size_t i = 0; i < tests.size(); ++i) {
      tests[i]->measure = adjusted[i];
      if (adjusted[i] > level || tests[i]->ruling == LawReport::Ruling::broken)
        continue;  // a scenario that failed gave its own reason
      tests[i]->ruling = LawReport::Ruling::broken;
      tests[i]->reason = "a joint chi-square of " + std::to_string(tests[i]->cases) +
                         " outputs gives p = " + std::to_string(p_values[i]) + ", " + std::to_string(adjusted[i]) +
                         " after Holm's correction";
    }
  }

  std::vector<LawReport> reports() {
    for (LawReport& r : reports_) {
      if (r.ruling != LawReport::Ruling::holds || r.ran == r.scenarios) continue;
      r.ruling = LawReport::Ruling::not_shown;
      r.reason = std::to_string(r.scenarios - r.ran) + " of its " + std::to_string(r.scenarios) +
                 " scenarios did not start in time; --seconds gives more";
    }
    return std::move(reports_);
  }

 private:
  void add(const KitLaw& law, const Candidate& c, const Environment& environment, bool wanted) {
    LawReport r{.law = law.name,
                .subject = c.subject.text(),
                .reason = wanted ? law.inapplicable(c, environment) : "it was not run: other laws were named"};
    bool elsewhere = false;
    if (r.reason.empty())
      for (LawCase& scenario : law.cases(c, environment)) {
        if (!scenario.concerns.empty() && !known_.insert({law.name, scenario.scenario, scenario.concerns}).second)
          elsewhere = true;
        else
          jobs_.push_back({reports_.size(), r.scenarios++, std::move(scenario)});
      }
    if (elsewhere && r.scenarios == 0) r.reason = "what it concerns is tested in another combination";
    if (!r.reason.empty()) r.ruling = LawReport::Ruling::inapplicable;
    reports_.push_back(std::move(r));
  }

  std::vector<LawReport> reports_;
  std::set<std::array<std::string, 3>>
      known_;  // scenarios that do not depend on the whole candidate: law, name, concern
  std::vector<Job> jobs_;
  std::mutex books_;
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

std::vector<Candidate> candidates(const Choice& choice) {
  const Registries& r = choice.registries;
  const json fixed{{"name", "fixed"}, {"length", 4}}, of_policies{{"name", "draft_model"}, {"model", "table:other"}};
  // A policy is checked under one drafter: it decides on lengths, whatever the drafter.
  const bool policy_alone = choice.drafter.is_null() && !choice.policy.is_null();
  const auto drafters = chosen(r.drafters, policy_alone ? of_policies : choice.drafter);
  auto verifiers = chosen(r.verifiers, choice.verifier);
  const bool own_verifier = !choice.verifier.is_null() || (choice.drafter.is_null() && choice.policy.is_null());
  // What a drafter or a policy owes shows beside exact verifiers; lossy ones hide it.
  if (!own_verifier) std::erase_if(verifiers, [&](const json& verifier) { return !soundness_of(r, verifier).exact(); });
  std::vector<Candidate> all;
  const auto add = [&](const json& drafter, const json& policy, const json& verifier, bool own) {
    if (sound(r, drafter, verifier)) all.push_back(candidate({r, {drafter, policy, verifier}}, own, own_verifier));
  };
  for (const json& drafter : drafters)
    for (const json& verifier : verifiers)
      add(drafter, choice.policy.is_null() ? fixed : configured(r.policies, choice.policy), verifier,
          !choice.policy.is_null());
  if (choice.policy.is_null() && choice.drafter.is_null())
    for (const json& policy : configurations(r.policies))
      if (policy["name"] != "fixed")
        for (const json& verifier : verifiers) add(of_policies, policy, verifier, true);
  if (all.empty()) {
    const auto takes = soundness_of(r, verifiers.at(0)).takes;
    std::string kinds, taken;
    for (const Drawn d : needs_of(r, drafters.at(0)).proposes)
      kinds += (kinds.empty() ? "" : ", ") + std::string(foretoken::name_of(d));
    for (const Drawn d : takes) taken += (taken.empty() ? "" : ", ") + std::string(foretoken::name_of(d));
    throw Error("no chosen verifier is sound for the drafter: its nodes are drawn '" + kinds +
                "', the verifier takes '" + taken + "'; choose another pair");
  }
  return all;
}

std::vector<std::string> left_out(const Choice& choice) {
  const Registries& r = choice.registries;
  std::vector<std::string> all;
  const auto add = [&](bool all_of_kind, const std::vector<std::string>& sentences) {
    if (all_of_kind) all.insert(all.end(), sentences.begin(), sentences.end());
  };
  add(choice.drafter.is_null(), not_configured(r.drafters));
  add(choice.drafter.is_null() && choice.policy.is_null(), not_configured(r.policies));
  add(choice.verifier.is_null(), not_configured(r.verifiers));
  return all;
}

CheckReport check(const std::vector<Candidate>& candidates, Environment environment, const HowToCheck& how) {
  const auto start = Clock::now();
  expect_known(how.laws);
  CheckReport report;
  environment.sampled_tests = int(
      std::ranges::count_if(candidates, [](const Candidate& c) { return c.soundness.promise.rfind("exact", 0) == 0; }));
  Session session(candidates, environment, how.laws);
  session.run(how.threads, how.seconds, start);
  session.correct(environment.level);
  report.laws = session.reports();
  report.level = environment.level, report.of_all_laws = how.laws.empty();
  for (const Candidate& c : candidates) report.subjects.push_back(c.subject.text());
  for (const LawReport& r : report.laws) {
    if (r.ruling == LawReport::Ruling::broken)
      report.sentences.push_back("the law '" + r.law + "' is broken by " + r.subject + ": " + r.reason);
    if (r.ruling == LawReport::Ruling::not_shown)
      report.sentences.push_back("the law '" + r.law + "' was not shown of " + r.subject + ": " + r.reason);
  }
  if (std::ranges::all_of(report.laws, [](const LawReport& r) { return r.ruling == LawReport::Ruling::inapplicable; }))
    report.sentences.push_back("nothing was shown: none of the named laws applies to what was named");
  for (const Candidate& c : candidates) {
    if (!how.laws.empty()) break;
    const std::string sentence = c.needs.proposes.empty() ? "" : never_drafted(c.subject.text(), report.laws);
    if (!sentence.empty()) report.sentences.push_back(sentence);
  }
  report.seconds = since(start);
  return report;
}

}  // namespace foretoken::conformance
