// The text and JSON reports of `foretoken check`.
#include "experiments/report/check_report.h"

#include <gtest/gtest.h>

namespace foretoken::test {

using namespace conformance;

namespace {

using nlohmann::json;

LawReport found(const std::string& subject, LawReport::Ruling ruling = LawReport::Ruling::holds) {
  LawReport r;
  r.law = "exact", r.subject = subject, r.ruling = ruling;
  r.scenarios = 4, r.ran = ruling == LawReport::Ruling::not_shown ? 2 : 4, r.cases = 10;
  return r;
}

// A report of combinations with one law each, as check() makes it.
CheckReport report_of(std::vector<LawReport> laws) {
  CheckReport report;
  for (const LawReport& r : laws) {
    report.subjects.push_back(r.subject);
    if (r.ruling != LawReport::Ruling::holds) report.sentences.push_back(r.subject + " " + name_of(r.ruling));
  }
  report.laws = std::move(laws);
  return report;
}

// The law's line of the table, for all combinations.
std::string line_of_all(const CheckReport& report) {
  const std::string text = check_text(report, {"foretoken check"}, false, 160), begin = "exact ";
  const std::size_t at = text.find("\n" + begin);
  return at == std::string::npos ? text : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
}

TEST(CheckReport, ABrokenLawIsBrokenWhateverOthersWereNotShown) {
  using enum LawReport::Ruling;
  const LawReport a = found("A", broken), b = found("B", not_shown), c = found("C", holds);
  for (const std::vector<LawReport>& order : {std::vector{a, b}, {b, a}, {a, b, c}, {c, b, a}}) {
    const CheckReport report = report_of(order);
    const std::string line = line_of_all(report);
    EXPECT_NE(line.find(" broken "), std::string::npos) << line;
    EXPECT_EQ(line.find("not shown"), std::string::npos) << line;
    EXPECT_FALSE(report.holds());
    EXPECT_NE(check_text(report, {"foretoken check"}, false, 160).find("1 law is broken ("), std::string::npos);
    const json j = check_json(report, {"foretoken check"});
    for (const json& finding : j["laws"][0]["findings"])
      EXPECT_EQ(finding["verdict"], finding["subject"] == "A"   ? "broken"
                                    : finding["subject"] == "B" ? "not shown"
                                                                : "holds");
    EXPECT_FALSE(j["holds"]);
  }
  for (const std::vector<LawReport>& order : {std::vector{b, c}, {c, b}})
    EXPECT_NE(line_of_all(report_of(order)).find(" not shown "), std::string::npos);
}

TEST(CheckReport, AReportSaysWhatWasCutInDepth) {
  LawReport a = found("A"), b = found("B"), c = found("C");
  a.count_cut(2, 3), b.count_cut(1, 2), c.count_cut(0, 0);
  const CheckReport report = report_of({b, a, c});
  EXPECT_NE(line_of_all(report).find("3 scenarios cut to depth 2 at the least"), std::string::npos)
      << line_of_all(report);
  EXPECT_NE(check_text(report, {"foretoken check"}, false, 160)
                .find("Every law that concerns them holds, 3 scenarios cut to depth 2 at the least ("),
            std::string::npos);
  EXPECT_NE(check_text(report_of({b, c}), {"foretoken check"}, false, 160).find("holds, 1 scenario cut to depth 2 ("),
            std::string::npos);
  const json findings = check_json(report, {"foretoken check"})["laws"][0]["findings"];
  EXPECT_EQ(findings[1]["cut"], (json{{"scenarios", 2}, {"least_depth", 3}}));
  EXPECT_FALSE(findings[2].contains("cut"));
}

TEST(CheckReport, WhatWasNotRunHasNoFigure) {
  LawReport idle = found("A", LawReport::Ruling::not_shown), drawn = found("B");
  for (LawReport* r : {&idle, &drawn}) r->law = "sampled";
  idle.ran = 0, idle.cases = 0, drawn.measure = 0.5;
  for (const std::vector<LawReport>& order : {std::vector{idle, drawn}, {drawn, idle}}) {
    const std::string text = check_text(report_of(order), {"foretoken check"}, false, 160);
    EXPECT_NE(text.find("p 0.5 (Holm)"), std::string::npos) << text;
  }
  EXPECT_EQ(check_text(report_of({idle, drawn}), {"foretoken check"}, true, 160).find("p 0 (Holm)"), std::string::npos);
  idle.law = "exact";
  EXPECT_EQ(check_text(report_of({idle}), {"foretoken check"}, false, 160).find("total variation 0"),
            std::string::npos);
}

}  // namespace
}  // namespace foretoken::test
