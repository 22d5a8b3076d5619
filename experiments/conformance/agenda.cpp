#include "experiments/conformance/agenda.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

namespace foretoken::conformance {
namespace {

using nlohmann::json;

// Messages may hold any bytes.
std::string dumped(const json& j) { return j.dump(-1, ' ', false, json::error_handler_t::replace); }

// JSON has no infinity and no NaN.
double number_of(const json& j) { return j.is_number() ? j.get<double>() : std::numeric_limits<double>::quiet_NaN(); }

class Writer {
 public:
  explicit Writer(const std::vector<std::string>& only) : only_(only) {}

  void add(const KitLaw& law, const Candidate& c, const Environment& environment) {
    const bool wanted = only_.empty() || std::ranges::find(only_, law.name) != only_.end();
    LawReport r{.law = law.name,
                .subject = c.subject.text(),
                .reason = wanted ? law.inapplicable(c, environment) : "it was not run: other laws were named"};
    bool elsewhere = false;
    if (r.reason.empty())
      for (LawCase& scenario : law.cases(c, environment)) {
        if (!scenario.concerns.empty() && !known_.insert({law.name, scenario.scenario, scenario.concerns}).second)
          elsewhere = true;
        else
          agenda.jobs.push_back(
              {agenda.reports.size(), r.scenarios++, std::move(scenario.scenario), std::move(scenario.run)});
      }
    if (elsewhere && r.scenarios == 0) r.reason = "what it concerns is tested in another combination";
    if (!r.reason.empty()) r.ruling = LawReport::Ruling::inapplicable;
    agenda.reports.push_back(std::move(r));
  }

  Agenda agenda;

 private:
  const std::vector<std::string>& only_;
  std::set<std::array<std::string, 3>>
      known_;  // scenarios that do not depend on the whole candidate: law, name, concern
};

}  // namespace

Agenda agenda_of(const Prepared& prepared, const std::vector<std::string>& only) {
  Environment environment = prepared.environment;
  environment.sampled_tests = int(std::ranges::count_if(
      prepared.candidates, [](const Candidate& c) { return c.soundness.promise.rfind("exact", 0) == 0; }));
  Writer writer(only);
  for (const KitLaw& law : kit_laws())
    for (const Candidate& c : prepared.candidates) writer.add(law, c, environment);
  Agenda& a = writer.agenda;
  std::ranges::stable_sort(a.jobs, {}, &Job::number);
  for (const Candidate& c : prepared.candidates) {
    a.subjects.push_back(c.subject.text());
    if (!c.needs.proposes.empty()) a.proposing.push_back(c.subject.text());
  }
  a.left_out = prepared.left_out, a.pairings = prepared.pairings, a.plugins = prepared.plugins;
  a.level = environment.level;
  return std::move(a);
}

std::string line_of(const Agenda& a) {
  json reports = json::array(), jobs = json::array(), plugins = json::array();
  for (const LawReport& r : a.reports) reports.push_back({r.law, r.subject, int(r.ruling), r.reason, r.scenarios});
  for (const Job& j : a.jobs) jobs.push_back({j.report, j.number, j.scenario});
  for (const PluginFile& p : a.plugins) plugins.push_back({p.path, p.hash});
  return dumped({{"subjects", a.subjects},
                 {"proposing", a.proposing},
                 {"reports", reports},
                 {"jobs", jobs},
                 {"left_out", a.left_out},
                 {"pairings", a.pairings},
                 {"plugins", plugins},
                 {"level", a.level}});
}

Agenda agenda_from(const std::string& line) {
  const json j = json::parse(line);
  Agenda a{j["subjects"], j["proposing"], {}, {}, j["left_out"], j["pairings"], {}, j["level"]};
  for (const json& r : j["reports"])
    a.reports.push_back({.law = r[0],
                         .subject = r[1],
                         .ruling = LawReport::Ruling(r[2].get<int>()),
                         .reason = r[3],
                         .scenarios = r[4]});
  for (const json& job : j["jobs"]) a.jobs.push_back({job[0], job[1], job[2]});
  for (const json& p : j["plugins"]) a.plugins.push_back({p[0], p[1]});
  return a;
}

std::string line_of(const Finding& f) {
  return dumped({{"holds", f.holds},
                 {"what", f.what},
                 {"why", f.why},
                 {"where", f.where},
                 {"measure", f.measure},
                 {"cases", f.cases},
                 {"accepted", f.accepted},
                 {"rejected", f.rejected},
                 {"cut_to", f.cut_to},
                 {"seen", f.seen}});
}

Finding finding_from(const std::string& line) {
  const json j = json::parse(line);
  return {.holds = j["holds"],
          .what = j["what"],
          .why = j["why"],
          .where = j["where"],
          .measure = number_of(j["measure"]),
          .cases = j["cases"],
          .accepted = j["accepted"],
          .rejected = j["rejected"],
          .cut_to = j["cut_to"],
          .seen = j["seen"]};
}

}  // namespace foretoken::conformance
