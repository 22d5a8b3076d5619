#include "experiments/sweep/kept.h"

#include <cmath>
#include <cstdio>

#include <xxhash.h>

#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

json outputs_of(const Measured& measured) {
  json hashes = json::array();
  for (std::size_t i = 0; i < measured.texts.size(); ++i) {
    const std::vector<Token>& text = measured.texts[i];
    hashes.push_back(measured.failures[i].empty() ? json(XXH3_64bits(text.data(), text.size() * sizeof(Token)))
                                                  : json());
  }
  return hashes;
}

std::string hash_of_outputs(const json& outputs) {
  const std::string all = outputs.dump();
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(XXH3_64bits(all.data(), all.size())));
  return std::string("xxh3:") + hex;
}

void Agreement::add(const json& outputs_a, const json& outputs_b) {
  for (std::size_t i = 0; i < outputs_a.size(); ++i) {
    if (outputs_a[i].is_null() || outputs_b[i].is_null()) continue;
    ++compared, different += outputs_a[i] != outputs_b[i];
  }
}

Taken measure_kept(const std::function<Measured()>& measure, const std::function<void()>& again, bool any) {
  constexpr std::size_t kMost = 3;
  constexpr double kStopped = 0.02;  // of the time
  std::vector<Measured> thrown;
  Taken taken;
  for (;;) {
    Measured found = measure();
    const double seconds = found.measure.at("seconds"), lost = found.measure.value("stopped_seconds", 0.0);
    if (any || lost <= kStopped * (seconds - found.measure.value("idle_seconds", 0.0))) {
      taken.measured = std::move(found);
      break;
    }
    if (thrown.size() + 1 == kMost)
      throw Error(
          "in each of three measurements the process got no processor for a while, the last time for " +
          std::to_string(std::lround(lost)) + " of " + std::to_string(std::lround(seconds)) +
          " s: it was stopped, or it waited for memory or files; run it again on a machine that does not suspend "
          "it and has room for the model, or, where no speed is wanted, with '/measure/busy' set to \"accept\"");
    taken.thrown_away.push_back(
        {{"reason", "the process was stopped"}, {"seconds", seconds}, {"stopped_seconds", lost}});
    thrown.push_back(std::move(found));
    again();
  }
  for (std::size_t i = 0; i < thrown.size(); ++i) {
    Agreement agreement;
    agreement.add(outputs_of(thrown[i]), outputs_of(taken.measured));
    taken.thrown_away[i]["differing_texts"] = agreement.different;
  }
  return taken;
}

std::set<std::size_t> left_out_of(const json& measure) {
  std::set<std::size_t> jobs;
  if (const auto found = measure.find("left_out"); found != measure.end())
    for (const json& turn : found->at("turns")) jobs.insert(turn.at("job").get<std::size_t>());
  return jobs;
}

void SameAgain::add(const json& measure, const json& outputs, const char* side, int repeat) {
  if (!compared_) return;
  First now{std::vector<std::vector<long>>(outputs.size()), outputs};
  const std::set<std::size_t> left_out = left_out_of(measure);
  auto request = measure.at("requests").begin();
  for (std::size_t job = 0; job < outputs.size(); ++job) {
    if (left_out.contains(job)) continue;
    for (const char* key : {"tokens", "rounds", "drafted", "tested", "accepted"})
      now.counts[job].push_back(request->at(key).get<long>());
    ++request;
  }
  const auto [known, fresh] = first_.try_emplace(side, now);
  int differing = 0;
  for (std::size_t i = 0; i < now.counts.size() && !fresh; ++i)
    differing += now.counts[i] != known->second.counts[i] || now.outputs[i] != known->second.outputs[i];
  if (differing > 0) differing_.push_back({{"side", side}, {"repeat", repeat}, {"requests", differing}});
}

}  // namespace foretoken
