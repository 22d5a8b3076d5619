#include "experiments/sweep/jobs.h"

#include <algorithm>
#include <map>

#include "experiments/sweep/learning.h"
#include "experiments/sweep/workload.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

constexpr std::uint64_t kMostTurns = 2048;  // of a conversation; parts of streams beyond are of requests before it

// The prompts of a workload that is to have at least `wanted` requests.
std::vector<Prompt> prompts_for(const json& w, std::size_t wanted, const std::filesystem::path& beside) {
  const std::size_t limit = w["limit"], repeats = w["repeats"], least = (wanted + repeats - 1) / repeats;
  if (w["skip"] > 0 && limit > 0 && limit < least)
    throw Error("'/workload/limit' is " + std::to_string(limit) + ", but the batch needs " + std::to_string(least) +
                " prompts, so what '/workload/skip' leaves to another run is not known; raise the limit of both");
  const auto prompts = choose_prompts(read_prompts(locate(w["prompts"], beside)), w["categories"],
                                      limit == 0 ? 0 : int(std::max(limit, least)), w["skip"]);
  if (prompts.size() * repeats < wanted)
    throw Error(
        "the workload has " + std::to_string(prompts.size()) + " prompts, and a batch needs " +
        std::to_string(kRequestsAPlace) + " distinct requests for each of its places: " + std::to_string(wanted) +
        "; name a file with more prompts, or set /workload/repeats to " +
        std::to_string((wanted + prompts.size() - 1) / prompts.size()) + ", which serves other samples of each");
  return prompts;
}

// The requests of prompts, one after another.
class Serving {
 public:
  Serving(const json& run, Workbench& bench, const std::filesystem::path& beside)
      : run_(run),
        target_(bench.target_info(run, beside)),
        tokenizer_(bench.tokenizer(target_of(run), beside)),
        chat_(chat_of(run, beside)) {}

  // Sample k of a prompt: the number of its first job is `first` where k > 0.
  void add(const Prompt& p, std::uint64_t repeat, std::uint64_t k, int first) {
    const std::uint64_t samples = run_["sampling"]["samples"];
    const std::size_t most = run_["workload"]["turns"], all = 1 + p.later.size();
    const std::size_t turns = most == 0 ? all : std::min(most, all);
    if (turns > kMostTurns)
      throw Error("prompt " + std::to_string(p.number) + " has " + std::to_string(turns) + " turns, and at most " +
                  std::to_string(kMostTurns) + " have draws of their own; lower '/workload/turns'");
    const std::uint64_t sample = repeat * samples + k;
    Request request = request_of(run_, target_, tokenizer_, chat_, p, sample);
    for (std::size_t turn = 0; turn < turns; ++turn) {
      jobs_.push_back({request, p.number, p.category, turn == 0 && k > 0 ? first : -1, int(turn),
                       turn == 0 ? -1 : int(jobs_.size()) - 1});
      Request& own = jobs_.back().request;
      if (turn > 0) own.prompt = next(p, turn);
      // Draws are named by stream and position: turns of one stream would meet draws that the end of the turn before
      // had looked at.
      own.stream = stream_of(p.number, sample, turn);
      int& limit = own.limits.max_new_tokens;
      if (run_["workload"]["lengths"] == "drawn") limit = drawn_length(p.number, repeat, limit, int(turn));
    }
  }
  int size() const { return int(jobs_.size()); }
  std::vector<Job> take() { return std::move(jobs_); }

 private:
  // What a turn says behind the answer to the one before.
  std::vector<Token> next(const Prompt& p, std::size_t turn) const {
    if (!chat_) return tokenizer_->encode(p.later[turn - 1], /*special=*/false);
    std::vector<std::string> questions{p.text};
    questions.insert(questions.end(), p.later.begin(), p.later.begin() + std::ptrdiff_t(turn));
    return chat_->encode_next(*tokenizer_, questions, system_of(run_));
  }

  const json& run_;
  const ModelInfo target_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  std::vector<Job> jobs_;
};

std::vector<Job> with_other_draws(std::vector<Job> jobs) {
  for (Job& job : jobs) job.request.stream |= stream_of(0, 0, kMostTurns);
  return jobs;
}

// The lines of a file may be equal.
void expect_no_prompt_twice(const std::vector<Job>& before, const std::vector<Job>& jobs) {
  std::map<std::vector<Token>, int> numbers;
  for (const auto* list : {&before, &jobs})
    for (const Job& job : *list) {
      if (job.after >= 0) continue;
      if (const auto [known, fresh] = numbers.try_emplace(job.request.prompt, job.prompt); !fresh)
        throw Error(
            "the prompts " + std::to_string(known->second + 1) + " and " + std::to_string(job.prompt + 1) +
            " of the workload begin equally, but with \"others\" of '/workload/start' no prompt is served twice; " +
            "take one of them out of the file");
    }
}

}  // namespace

std::vector<Job> jobs_of(const json& run, Workbench& bench, const std::filesystem::path& beside) {
  const json& w = run["workload"];
  const std::size_t wanted = kRequestsAPlace * run["engine"]["batch"].get<std::size_t>(), repeats = w["repeats"];
  const std::uint64_t samples = run["sampling"]["samples"];
  const auto prompts = prompts_for(w, wanted, beside);
  Serving serving(run, bench, beside);
  for (std::uint64_t repeat = 0; repeat < repeats; ++repeat)
    for (const Prompt& p : prompts) {
      const int first = serving.size();
      for (std::uint64_t k = 0; k < samples; ++k) serving.add(p, repeat, k, first);
    }
  return serving.take();
}

std::vector<Job> jobs_before(const json& run, const std::vector<Job>& jobs, Workbench& bench,
                             const std::filesystem::path& beside) {
  if (!is_warm(run)) return {};
  if (!knows_others(run)) return with_other_draws(jobs);
  const json& w = run["workload"];
  Serving serving(run, bench, beside);
  for (const Prompt& p : choose_prompts(read_prompts(locate(w["prompts"], beside)), w["categories"], w["skip"]))
    serving.add(p, 0, 0, serving.size());
  std::vector<Job> before = serving.take();
  expect_no_prompt_twice(before, jobs);
  return before;
}

std::vector<Job> warm_up_jobs(std::vector<Job> jobs, std::size_t batch) {
  constexpr std::size_t kTokens = 16;       // of the first batch, at most
  std::vector<int> place(jobs.size(), -1);  // among the first turns
  int first_turns = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i)
    if (jobs[i].after < 0) place[i] = first_turns++;
  for (Job& job : jobs)
    if (job.first >= 0) job.first = place[std::size_t(job.first)];
  std::erase_if(jobs, [](const Job& job) { return job.after >= 0; });
  jobs.resize(std::min(jobs.size(), 2 * batch));
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    int& most = jobs[i].request.limits.max_new_tokens;
    most = std::min(most, int((kTokens * (i + 1) + batch - 1) / batch));
  }
  return jobs;
}

}  // namespace foretoken
