#include "experiments/sweep/jobs.h"

#include <algorithm>

#include "experiments/sweep/workload.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

// The prompts of a workload that is to have at least `wanted` requests.
std::vector<Prompt> prompts_for(const json& w, std::size_t wanted, const std::filesystem::path& beside) {
  const std::size_t limit = w["limit"], repeats = w["repeats"], least = (wanted + repeats - 1) / repeats;
  const auto prompts = choose_prompts(read_prompts(locate(w["prompts"], beside)), w["categories"],
                                      limit == 0 ? 0 : int(std::max(limit, least)));
  if (prompts.size() * repeats < wanted)
    throw Error(
        "the workload has " + std::to_string(prompts.size()) + " prompts, and a batch needs " +
        std::to_string(kRequestsAPlace) + " distinct requests for each of its places: " + std::to_string(wanted) +
        "; name a file with more prompts, or set /workload/repeats to " +
        std::to_string((wanted + prompts.size() - 1) / prompts.size()) + ", which serves other samples of each");
  return prompts;
}

}  // namespace

std::vector<Job> jobs_of(const json& run, Workbench& bench, const std::filesystem::path& beside) {
  const json& w = run["workload"];
  const std::size_t wanted = kRequestsAPlace * run["engine"]["batch"].get<std::size_t>(), repeats = w["repeats"];
  const std::uint64_t samples = run["sampling"]["samples"];
  const auto prompts = prompts_for(w, wanted, beside);
  const auto target = bench.target(run, beside);
  const auto tokenizer = bench.tokenizer(target_of(run), beside);
  const auto chat = chat_of(run, beside);
  const bool drawn = w["lengths"] == "drawn";
  std::vector<Job> jobs;
  for (std::uint64_t repeat = 0; repeat < repeats; ++repeat)
    for (const Prompt& p : prompts) {
      const int first = int(jobs.size());
      for (std::uint64_t k = 0; k < samples; ++k) {
        jobs.push_back({request_of(run, target->info(), tokenizer, chat, p, repeat * samples + k), p.number, p.category,
                        k > 0 ? first : -1});
        int& most = jobs.back().request.limits.max_new_tokens;
        if (drawn) most = drawn_length(p.number, repeat, most);
      }
    }
  return jobs;
}

std::vector<Job> warm_up_jobs(std::vector<Job> jobs, std::size_t batch) {
  constexpr std::size_t kTokens = 16;  // of the first batch, at most
  jobs.resize(std::min(jobs.size(), 2 * batch));
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    int& most = jobs[i].request.limits.max_new_tokens;
    most = std::min(most, std::max(1, int(kTokens * (i + 1) / batch)));
  }
  return jobs;
}

}  // namespace foretoken
