#include "experiments/sweep/rehearsal.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "experiments/session/interrupt.h"
#include "experiments/session/run_document.h"
#include "experiments/sweep/alternation.h"
#include "experiments/sweep/jobs.h"
#include "experiments/sweep/runner.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

// Knows its shape and cannot compute. A component that computes when it is made says nothing then.
class Weightless : public Model {
 public:
  Weightless(ModelInfo info, bool& computed) : info_(std::move(info)), computed_(computed) {}
  const ModelInfo& info() const override { return info_; }
  Output forward(Backend&, const Rows&, std::span<const KvLayer>) override {
    computed_ = true;
    throw Error("the weights of " + info_.name + " are not loaded yet");
  }
  const Ends* ends(Backend&) override {
    computed_ = true;
    return nullptr;
  }
  std::shared_ptr<Model> part(const std::shared_ptr<Model>& self, const LeftOut&) override { return self; }

 private:
  ModelInfo info_;
  bool& computed_;
};

// Reasons are alike where they differ in whole numbers alone.
std::string without_numbers(const std::string& reason) {
  std::string text;
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t i = 0; i < reason.size();) {
    std::size_t end = i;
    while (end < reason.size() && digit(reason[end])) ++end;
    const bool begins = i == 0 || reason[i - 1] == ' ',
               ends = end == reason.size() || !std::isalnum(static_cast<unsigned char>(reason[end]));
    if (end > i && begins && ends)
      text += '#', i = end;
    else
      text += reason[i++];
  }
  return text;
}

// Prompts that are refused for one reason.
struct Refused {
  std::vector<int> prompts;  // numbers, from 1
  std::string first;
};

std::string listed(const std::vector<int>& prompts) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, prompts.size()); ++i)
    text += (i ? ", " : "") + std::to_string(prompts[i]);
  return text + (prompts.size() > kShown ? ", ..." : "");
}

class Rehearsal {
 public:
  Rehearsal(Workbench& bench, const std::filesystem::path& beside) : bench_(bench), beside_(beside) {}

  // Why the run cannot be measured: its engines, its requests; none where nothing is known.
  std::vector<std::string> failures(const json& run) {
    std::vector<std::string> all;
    computed_ = false;
    if (std::string engine = failure_of([&] { expect_engine(run); }); !engine.empty() && !computed_)
      all.push_back(std::move(engine));
    json requests = run;  // what does not change requests
    for (const char* key : {"drafter", "policy", "verifier", "measure", "trace"}) requests.erase(key);
    const auto [known, fresh] = requests_.try_emplace(requests.dump());
    if (fresh) known->second = failure_of([&] { expect_requests(run); });
    if (!known->second.empty() && std::ranges::find(all, known->second) == all.end()) all.push_back(known->second);
    return all;
  }

 private:
  // Information, and its place among those of other runs.
  template <class Make> ModelInfo info(const json& run, const std::string& what, const Make& make) {
    const json& e = run.at("engine");
    const std::string key =
        json{what, e.at("device"), e.at("threads"), e.value("numerics", ""), run.value("parallel", json())}.dump();
    if (!infos_.contains(key)) infos_[key] = make();
    return infos_[key];
  }
  ModelInfo target(const json& run) {
    return info(run, run.at("target").dump(), [&] { return bench_.target_info(run, beside_); });
  }
  std::shared_ptr<Model> model(const json& run, const ModelChoice& choice) {
    const ModelInfo of = target(run);
    const std::string what = run.at("target").dump() + choice.document().dump() + choice.kv_dtype;
    return std::make_shared<Weightless>(info(run, what, [&] { return bench_.info_beside(of, choice, run, beside_); }),
                                        computed_);
  }

  // Both sides' engines are made, each of one page: the pool is not needed.
  void expect_engine(const json& run) {
    const ModelInfo info = target(run);
    pages(run);
    for (const Side side : {Side::baseline, Side::speculative}) {
      EngineOptions options = options_of(run, 1);
      options.pages = 1;
      const ComponentConfigs configs = configs_of(run, side, bench_.registries(), beside_);
      expect_fit_whole(bench_.registries(), configs, info);
      const Engine engine(
          bench_.backend(run.at("engine")), std::make_shared<Weightless>(info, computed_), bench_.registries(), configs,
          options, [&](const ModelChoice& choice) { return model(run, choice); }, kept_);
      if (side == Side::speculative) expect_start(run, engine.learns());
    }
  }

  // Of the pool; the most that there can be, where that depends on what weights leave.
  int pages(const json& run) {
    const json& e = run.at("engine");
    const Backend& device = bench_.backend(e);
    const std::int64_t free = device.free_memory() >> 20;  // MiB; 0: unknown
    const bool fixed = e.at("memory_fraction").is_null();
    if (!fixed && free == 0) return std::numeric_limits<int>::max();
    return pool_pages(options_of(run, fixed ? e.at("memory_mib").get<std::int64_t>() : free), target(run), device);
  }

  // Every prompt, with all that a request of it has; later turns of a conversation depend on outputs.
  void expect_requests(const json& run) {
    const ModelInfo info = target(run);
    const int pool = pages(run);
    const EngineOptions options = options_of(run, 1);
    std::vector<std::pair<std::string, Refused>> reasons;
    std::map<int, bool> prompts;  // whether each is refused
    std::vector<Job> jobs = jobs_of(run, bench_, beside_);
    std::ranges::move(jobs_before(run, jobs, bench_, beside_), std::back_inserter(jobs));
    for (const Job& job : jobs) {
      check_interrupt();
      if (job.after >= 0 || !prompts.try_emplace(job.prompt, false).second) continue;
      const std::string why = failure_of([&] { expect_servable(job.request, info, options, pool); });
      if (why.empty()) continue;
      const std::string kind = without_numbers(why);
      auto known = std::ranges::find(reasons, kind, [](const auto& entry) { return entry.first; });
      if (known == reasons.end()) known = reasons.insert(known, {kind, {{}, why}});
      known->second.prompts.push_back(job.prompt + 1);
    }
    std::string text;
    for (const auto& [kind, refused] : reasons)
      text += (text.empty() ? "" : "; ") + std::to_string(refused.prompts.size()) + " of " +
              std::to_string(prompts.size()) + " prompts of the workload (" + listed(refused.prompts) +
              ") cannot be served, of the first: " + refused.first;
    if (!text.empty()) throw Error(text);
  }

  Workbench& bench_;
  const std::filesystem::path& beside_;
  std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
  std::map<std::string, ModelInfo> infos_;
  std::map<std::string, std::string> requests_;  // failures, by what they depend on
  bool computed_ = false;
};

}  // namespace

std::vector<Refusal> rehearse(const std::vector<Run>& runs, Workbench& bench, const std::filesystem::path& beside) {
  Rehearsal rehearsal(bench, beside);
  std::vector<Refusal> found;
  std::map<std::string, std::size_t> places;  // by reason
  for (const Run& run : runs) {
    check_interrupt();
    for (const std::string& reason : rehearsal.failures(run.document)) {
      const auto [place, fresh] = places.try_emplace(without_numbers(reason), found.size());
      if (fresh) found.push_back({reason, {}});
      found[place->second].runs.push_back(run);
    }
  }
  return found;
}

std::string sentence_of(const Refusal& refusal, std::size_t all) {
  if (all == 1) return "the run cannot be measured: " + refusal.reason;
  return std::to_string(refusal.runs.size()) + " of " + std::to_string(all) +
         " runs cannot be measured: " + refusal.reason + " (the first: " + label_of(refusal.runs.front()) + ")";
}

}  // namespace foretoken
