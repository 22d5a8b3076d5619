#include "experiments/report/notes.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace foretoken {
namespace {

constexpr double kSteadyShare = 0.75;

// "2 turns left out: the conversation reached the context of 512 tokens"; of both sides where these differ.
std::string left_out_of(const LeftOutTurns& turns) {
  if (!turns.any()) return "";
  std::string count = std::to_string(turns.speculative);
  if (turns.speculative != turns.baseline) count += " and, of plain decoding, " + std::to_string(turns.baseline);
  return count + (count == "1" ? " turn" : " turns") + " left out: the conversation reached the context of " +
         std::to_string(turns.context) + " tokens";
}

}  // namespace

std::string kind_of(const std::string& promise) { return promise.substr(0, promise.find_first_of(",:")); }

std::string standing(const Interval& speedup) {
  if (!speedup.bounded()) return "";
  return speedup.against(1) > 0 ? "" : speedup.against(1) < 0 ? "loses" : "unclear";
}

std::string unfinished_of(const Summary& s) {
  const auto& unfinished = s.result.unfinished;
  if (!unfinished) return "";
  return std::to_string(unfinished->done) + " of " + std::to_string(unfinished->of) + " alternations";
}

std::string Notes::of(const Summary& s) {
  found_ = kind_of(s.promise);
  if (s.compared && s.differing_texts == 0) {
    found_ += " ✓";
    mean("✓: all outputs equal the baseline's");
  }
  if (s.compared && s.differing_texts > 0) {
    found_ += " ✗" + std::to_string(s.differing_texts) + "/" + std::to_string(s.compared_texts);
    mean("✗: how many outputs differ from the baseline's");
  }
  if (s.failed_requests > 0)
    note(std::to_string(s.failed_requests) + " failed", "failed: requests whose prompts are left out");
  note(left_out_of(s.left_out_turns), "");
  note(s.run().value("/workload/start"_json_pointer, ""),
       "cold, warm, others: what a drafter or policy that learns had seen before it was measured");
  if (s.load)
    note("open loop", "open loop: requests arrive at a rate, which caps tok/s, so there is no speedup (table load)");
  if (s.load && s.load->periods < 1)
    note("part of the load",
         "part of the load: all requests had arrived before '/workload/rates' had come once (serve more of them)");
  note(standing(s.speedup),
       s.speedup.against(1) < 0 ? "loses: slower than plain decoding" : "unclear: the interval contains 1");
  if (s.without_speeds)
    note("no speeds",
         "no speeds: the run accepts a busy machine (/measure/busy), so nothing that depends on times is shown");
  alternations(s);
  if (s.in_shares)
    note("shares",
         "shares: a batch's queue cannot be run again with other prompts, so the interval resamples their "
         "shares of the time and is too wide");
  if (s.speculative.cut > 0)
    note("cut", "cut: trees had fewer nodes than the policy requested, for lack of rows or pages");
  if (s.left_out == 0) no_draft(s.speculative);  // counted over all requests, failed ones too
  if (s.alternations_differ)
    note("alternations differ", "alternations differ: a side did not do the same again though its draws were equal");
  if (s.two_speeds) note("two speeds", "two speeds: steps that do the same took two different times");
  if (s.steady_share < kSteadyShare)  // also where the slots were never all taken
    note("short", "short: slots were all taken for less than three quarters of the time");
  return found_;
}

void Notes::mean(const std::string& meaning) {
  if (std::ranges::find(meanings_, meaning) == meanings_.end()) meanings_.push_back(meaning);
}

void Notes::note(const std::string& text, const std::string& meaning) {
  if (text.empty()) return;
  found_ += (found_.empty() ? "" : ", ") + text;
  if (!meaning.empty()) mean(meaning);
}

void Notes::alternations(const Summary& s) {
  if (s.result.unfinished)
    note(unfinished_of(s), "1 of 3 alternations: the sweep goes on, or was interrupted");
  else if (s.repeats == 1 && !s.without_speeds && s.prompts_alone)
    note("prompts alone",
         "prompts alone: of a GPU's one alternation the interval says how prompts vary, not the machine");
  else if (s.repeats == 1 && !s.without_speeds)
    note("one alternation", "one alternation: no interval, since it does not say how the machine varies");
}

void Notes::no_draft(const SideFigures& side) {
  static const std::map<std::string, std::string> kReasons = {
      {"context", "the context of the drafter's model is full (choose one with a longer context, or shorter outputs)"},
      {"pages", "the pool has no pages (raise /engine/memory_mib)"},
      {"rows", "the step has no rows (raise /engine/step_rows)"},
      {"policy", "the policy asked for none"},
      {"states", "the target had yet to compute the states that the drafter reads"},
      {"nothing", "the drafter had nothing, or was less sure than the policy's confidence"}};
  std::string found;
  for (const auto& [reason, rounds] : side.no_draft) {
    if (reason == "end" || rounds < side.rounds / 20) continue;
    if (found.empty()) mean("no draft: rounds that verified no draft, of all rounds");
    found += (found.empty() ? "no draft: " : " and ") + reason + " " +
             std::to_string(std::lround(100 * rounds / side.rounds)) + " %";
    if (const auto known = kReasons.find(reason); known != kReasons.end()) mean(reason + ": " + known->second);
  }
  note(found, "");
}

}  // namespace foretoken
