#include "experiments/report/check_report.h"

#include <algorithm>
#include <cstdio>

#include "experiments/report/machine.h"
#include "experiments/report/table.h"
#include "foretoken_version.h"

namespace foretoken {

using conformance::CheckReport;
using conformance::KitLaw;
using conformance::LawReport;
using nlohmann::ordered_json;
using Ruling = LawReport::Ruling;

namespace {

std::string number(const char* format, double value) {
  char text[40];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

bool has_run(const LawReport& r) { return r.ruling != Ruling::inapplicable && r.ran > 0; }

// The reports of one law on several combinations, merged.
LawReport together(const std::vector<const LawReport*>& parts) {
  LawReport all = *parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const LawReport& r = *parts[i];
    const bool fresh = all.ran == 0;  // what was not run has no measure
    all.scenarios += r.scenarios, all.ran += r.ran, all.cases += r.cases, all.accepted += r.accepted,
        all.rejected += r.rejected;
    all.seconds += r.seconds;
    if (r.ran > 0)
      all.measure = fresh                ? r.measure
                    : r.law == "sampled" ? std::min(all.measure, r.measure)
                                         : std::max(all.measure, r.measure);
    for (const auto& [what, n] : r.seen) all.seen[what] += n;
    all.count_cut(r.cut, r.least_depth);
    if (r.ruling == Ruling::broken || all.ruling == Ruling::holds)
      all.ruling = r.ruling;  // precedence: broken, not shown, holds
  }
  return all;
}

// "3 scenarios cut to depth 2": fewer tokens of an output were compared than the scenario's name says.
std::string cut_of(const LawReport& r) {
  return std::to_string(r.cut) + (r.cut == 1 ? " scenario" : " scenarios") + " cut to depth " +
         std::to_string(r.least_depth) + (r.cut == 1 ? "" : " at the least");
}

std::string figure_of(const KitLaw& law, const LawReport& r, const CheckReport& report) {
  std::string s;
  if (law.name == "sampled" && r.ran > 0)
    s = "p " + number("%.2g", r.measure) + " (Holm); a variation of " + number("%g", report.found) + " is found with " +
        number("%g", 100 * report.power) + " %";
  else if (!law.measure.empty() && r.ran > 0)
    s = law.measure + " " + number("%.1e", r.measure);
  if (r.cut > 0) s += (s.empty() ? "" : ", ") + cut_of(r);
  for (const auto& [what, n] : r.seen) s += (s.empty() ? "" : ", ") + std::to_string(n) + " " + what;
  if (r.ran < r.scenarios)
    s += (s.empty() ? "" : ", ") + std::to_string(r.scenarios - r.ran) + " of " + std::to_string(r.scenarios) +
         " scenarios were not run in time";
  return s;
}

Row row_of(const KitLaw& law, const LawReport& r, const std::string& subject, const CheckReport& report) {
  return {{Cell::of(law.name), Cell::of(std::string(conformance::name_of(r.ruling))), Cell::of(subject),
           Cell::of(double(r.cases), 0), Cell::of(law.counted), Cell::of(figure_of(law, r, report)),
           Cell::of(r.seconds, 1)},
          "",
          false};
}

void add_law(const KitLaw& law, const CheckReport& report, bool details, Table& table) {
  std::vector<const LawReport*> applied;
  std::map<std::string, int> inapplicable;
  for (const LawReport& r : report.laws) {
    if (r.law != law.name) continue;
    if (r.ruling == Ruling::inapplicable)
      ++inapplicable[r.reason];
    else
      applied.push_back(&r);
  }
  if (!applied.empty()) table.rows.push_back(row_of(law, together(applied), std::to_string(applied.size()), report));
  if (details)
    for (const LawReport* r : applied) table.rows.push_back(row_of(law, *r, r->subject, report));
  for (const auto& [reason, count] : inapplicable)
    table.rows.push_back({{Cell::of(law.name), Cell::of(std::string(conformance::name_of(Ruling::inapplicable))),
                           Cell::of(std::to_string(count))},
                          reason,
                          false});
}

ordered_json json_of(const KitLaw& law, const LawReport& r, const CheckReport& report) {
  ordered_json j{{"subject", r.subject}, {"verdict", conformance::name_of(r.ruling)}};
  if (!r.reason.empty()) j["reason"] = r.reason;
  if (!has_run(r)) return j;
  j["scenarios"] = r.ran, j["scenarios_in_all"] = r.scenarios, j["cases"] = r.cases;
  if (!law.measure.empty()) j["figure"] = {{"name", law.measure}, {"value", r.measure}};
  if (law.name == "sampled")
    j["power"] = {{"level", report.level}, {"total_variation", report.found}, {"power", report.power}};
  j["guesses_accepted"] = r.accepted, j["rejections"] = r.rejected;
  if (!r.seen.empty()) j["seen"] = r.seen;
  if (r.cut > 0) j["cut"] = {{"scenarios", r.cut}, {"least_depth", r.least_depth}};
  if (!r.notes.empty()) j["notes"] = r.notes;
  j["seconds"] = r.seconds;
  return j;
}

// The program, machine, date and command.
std::string heading(const Question& question) {
  const MachineInfo host = host_of();
  std::string s = std::string("foretoken ") + kVersion + ", commit " + kCommit + ", " + kCompiler + ", " + kBuildType +
                  "; " + host.cpu + ", " + std::to_string(host.cores) + " cores, " + host.os + "; " + utc_now() + "\n" +
                  question.command + "\n";
  for (const PluginFile& plugin : question.plugins) s += "plugin " + plugin.path + ", hash " + plugin.hash + "\n";
  return s;
}

std::string verdict_on_all(const CheckReport& report) {
  const long broken = std::ranges::count(report.laws, Ruling::broken, &LawReport::ruling);
  LawReport cut;
  for (const LawReport& r : report.laws) cut.count_cut(r.cut, r.least_depth);
  std::string s = std::to_string(broken) + (broken == 1 ? " law is broken" : " laws are broken");
  if (report.holds())
    s = report.of_all_laws ? "Every law that concerns them holds" : "The laws that were run hold, others were not run";
  else if (broken == 0)
    s = "No law is broken, but not all was shown";
  return cut.cut > 0 ? s + ", " + cut_of(cut) : s;
}

}  // namespace

std::string check_text(const CheckReport& report, const Question& question, bool details, int width) {
  Table table{std::to_string(report.subjects.size()) +
                  (report.subjects.size() == 1 ? " combination" : " combinations") + " of drafter, policy and verifier",
              "",
              {{"law", "law", "", Column::Kind::text},
               {"verdict", "verdict", "", Column::Kind::text},
               {"of", "of", "", Column::Kind::text},
               {"cases", "cases", "", Column::Kind::number},
               {"", "counted", "", Column::Kind::text},
               {"figure", "figure", "", Column::Kind::text},
               {"s", "seconds", "", Column::Kind::number}},
              {}};
  std::vector<KitLaw> asked = conformance::kit_laws();
  std::erase_if(asked, [&](const KitLaw& law) {
    return !question.laws.empty() && std::ranges::find(question.laws, law.name) == question.laws.end();
  });
  for (const KitLaw& law : asked) add_law(law, report, details, table);
  std::string s = heading(question) + "\n";
  if (report.subjects.size() <= 20)
    for (const std::string& subject : report.subjects) s += "  " + subject + "\n";
  s += "\n" + table.terminal(width) + "\n";
  const auto applied = [&](const KitLaw& law) {
    return std::ranges::any_of(
        report.laws, [&](const LawReport& r) { return r.law == law.name && r.ruling != Ruling::inapplicable; });
  };
  for (const KitLaw& law : asked)
    if (applied(law)) s += law.name + ": " + law.statement + "\n";
  s += "\n";
  for (const std::string& sentence : report.pairings) s += "Beside what: " + sentence + "\n";
  for (const std::string& sentence : report.left_out) s += "Not checked: " + sentence + "\n";
  for (const std::string& sentence : report.sentences) s += sentence + "\n";
  return s + verdict_on_all(report) + " (" + number("%.1f", report.seconds) + " s).\n";
}

ordered_json check_json(const CheckReport& report, const Question& question) {
  ordered_json laws = ordered_json::array(), plugins = ordered_json::array();
  for (const PluginFile& plugin : question.plugins) plugins.push_back({{"path", plugin.path}, {"hash", plugin.hash}});
  for (const KitLaw& law : conformance::kit_laws()) {
    ordered_json findings = ordered_json::array();
    for (const LawReport& r : report.laws)
      if (r.law == law.name) findings.push_back(json_of(law, r, report));
    laws.push_back(
        {{"law", law.name}, {"statement", law.statement}, {"cases_count", law.counted}, {"findings", findings}});
  }
  return {{"schema", 1},
          {"program", {{"version", kVersion}, {"commit", kCommit}, {"compiler", kCompiler}, {"build", kBuildType}}},
          {"machine", to_json(machine_of(*make_cpu_backend(1)))},
          {"date", utc_now()},
          {"command", question.command},
          {"plugins", plugins},
          {"seconds", report.seconds},
          {"subjects", report.subjects},
          {"left_out", report.left_out},
          {"pairings", report.pairings},
          {"laws", laws},
          {"broken", report.sentences},
          {"holds", report.holds()}};
}

}  // namespace foretoken
