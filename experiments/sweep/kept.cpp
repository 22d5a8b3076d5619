#include "experiments/sweep/kept.h"

#include <cmath>
#include <cstdio>

#include <xxhash.h>

#include "experiments/report/described.h"
#include "kernels/error.h"

namespace foretoken {

Outputs outputs_of(const Measured& measured) {
  Outputs hashes(measured.texts.size());
  for (std::size_t i = 0; i < hashes.size(); ++i)
    if (measured.failures[i].empty())
      hashes[i] = XXH3_64bits(measured.texts[i].data(), measured.texts[i].size() * sizeof(Token));
  return hashes;
}

std::string hash_of_outputs(const Outputs& outputs) {
  const std::string all = described::written(outputs).dump();
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(XXH3_64bits(all.data(), all.size())));
  return std::string("xxh3:") + hex;
}

void compare_outputs(const Outputs& a, const Outputs& b, Agreement& agreement) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!a[i] || !b[i]) continue;
    ++agreement.compared_texts;
    agreement.differing_texts += a[i] != b[i];
  }
}

Taken measure_kept(const std::function<Measured()>& measure, const std::function<void()>& again, bool any) {
  constexpr std::size_t kMost = 3;
  constexpr double kStopped = 0.02;  // of the time
  std::vector<Measured> thrown;
  Taken taken;
  for (;;) {
    Measured found = measure();
    const double seconds = found.record.seconds, lost = found.record.stopped_seconds.value_or(0);
    if (any || lost <= kStopped * (seconds - found.record.idle_seconds.value_or(0))) {
      taken.measured = std::move(found);
      break;
    }
    if (thrown.size() + 1 == kMost)
      throw Error(
          "in each of three measurements the process got no processor for a while, the last time for " +
          std::to_string(std::lround(lost)) + " of " + std::to_string(std::lround(seconds)) +
          " s: it was stopped, or it waited for memory or files; run it again on a machine that does not suspend "
          "it and has room for the model, or, where no speed is wanted, with '/measure/busy' set to \"accept\"");
    ThrownAway& why = taken.thrown_away.emplace_back();
    why.reason = "the process was stopped";
    why.seconds = seconds;
    why.stopped_seconds = lost;
    thrown.push_back(std::move(found));
    again();
  }
  const Outputs outputs = outputs_of(taken.measured);
  for (std::size_t i = 0; i < thrown.size(); ++i) {
    Agreement agreement;
    compare_outputs(outputs_of(thrown[i]), outputs, agreement);
    taken.thrown_away[i].differing_texts = agreement.differing_texts;
  }
  return taken;
}

std::set<std::size_t> left_out_of(const SideRecord& record) {
  std::set<std::size_t> jobs;
  if (record.left_out)
    for (const TurnsLeftOut::Turn& turn : record.left_out->turns) jobs.insert(std::size_t(turn.job));
  return jobs;
}

void SameAgain::add(const MeasuredSide& measured, const std::string& side, int repeat) {
  if (!found_.compared) return;
  const Outputs& outputs = measured.outputs;
  First now{std::vector<std::vector<long>>(outputs.size()), outputs};
  const std::set<std::size_t> left_out = left_out_of(measured.record);
  auto request = measured.record.requests.begin();
  for (std::size_t job = 0; job < outputs.size(); ++job) {
    if (left_out.contains(job)) continue;
    now.counts[job] = {request->tokens, request->rounds, request->drafted, request->tested, request->accepted};
    ++request;
  }
  const auto [known, fresh] = first_.try_emplace(side, now);
  long differing = 0;
  for (std::size_t i = 0; i < now.counts.size() && !fresh; ++i)
    differing += now.counts[i] != known->second.counts[i] || now.outputs[i] != known->second.outputs[i];
  if (differing > 0) found_.differing.push_back({.side = side, .repeat = repeat, .requests = differing});
}

}  // namespace foretoken
