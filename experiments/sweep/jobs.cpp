#include "experiments/sweep/jobs.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "experiments/session/run_document.h"
#include "experiments/sweep/workload.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

constexpr std::uint64_t kMostTurns = 2048;  // of a conversation; parts of streams beyond are of requests before it

// Prompts of exactly `tokens` tokens, in the form in which `encode` puts a text to the model: the text of the prompt
// and of those that follow it in the list, around to its beginning, cut before what the form has behind every text.
class ExactPrompts {
 public:
  using Encode = std::function<std::vector<Token>(const std::string& text)>;

  ExactPrompts(std::size_t tokens, std::vector<Prompt> further, const Encode& encode)
      : tokens_(tokens), further_(std::move(further)), encode_(encode) {
    const std::vector<Token> a = encode_("a"), b = encode_("0 b");
    const std::size_t shorter = std::min(a.size(), b.size());
    head_ = std::size_t(std::ranges::mismatch(a, b).in1 - a.begin());
    while (head_ + tail_ < shorter && a[a.size() - 1 - tail_] == b[b.size() - 1 - tail_]) ++tail_;
    if (tokens_ <= head_ + tail_)
      throw Error("'/workload/prompt_tokens' is " + std::to_string(tokens_) + ", but the form of a prompt has " +
                  std::to_string(head_ + tail_) + " tokens besides its text; raise it");
  }

  // Made once for all samples and repeats of a prompt.
  const std::vector<Token>& of(const Prompt& p) {
    const auto [known, fresh] = made_.try_emplace(p.number);
    if (fresh) known->second = made(p);
    return known->second;
  }

 private:
  std::vector<Token> made(const Prompt& p) {
    std::string text = p.text;
    std::vector<Token> whole = encode_(text);
    std::size_t next =
        std::size_t(std::ranges::upper_bound(further_, p.number, {}, &Prompt::number) - further_.begin());
    while (whole.size() < tokens_) {
      for (std::size_t length = whole.size(); length < tokens_; ++next) {
        const Prompt& more = further_[next % further_.size()];
        length += length_of(more);
        text += "\n\n" + more.text;
      }
      whole = encode_(text);  // pieces may join
    }
    whole.erase(whole.begin() + std::ptrdiff_t(tokens_ - tail_), whole.end() - std::ptrdiff_t(tail_));
    return whole;
  }
  std::size_t length_of(const Prompt& p) {
    const auto [known, fresh] = lengths_.try_emplace(p.number, 1);
    if (fresh)
      if (const std::size_t whole = encode_(p.text).size(), form = head_ + tail_; whole > form)
        known->second = whole - form;
    return known->second;
  }

  std::size_t tokens_, head_ = 0, tail_ = 0;  // of the form, before and behind a text
  std::vector<Prompt> further_;               // in the order of the file
  Encode encode_;
  std::map<int, std::size_t> lengths_;      // in tokens, by number
  std::map<int, std::vector<Token>> made_;  // by number
};

// The prompts of a workload that is to have at least `wanted` requests.
std::vector<Prompt> prompts_for(const json& w, std::size_t wanted, const std::filesystem::path& beside) {
  const std::size_t limit = w["limit"], repeats = w["repeats"], least = (wanted + repeats - 1) / repeats;
  if (w["skip"] > 0 && limit > 0 && limit < least)
    throw Error("'/workload/limit' is " + std::to_string(limit) + ", but the batch needs " + std::to_string(least) +
                " prompts, so what '/workload/skip' leaves to another run is not known; raise the limit of both");
  const auto prompts = choose_prompts(read_prompts(locate(w["prompts"], beside)), w["categories"],
                                      limit == 0 ? 0 : int(std::max(limit, least)), w["skip"]);
  if (prompts.size() * repeats < wanted)
    throw Error("the workload has " + std::to_string(prompts.size()) + " prompts, and a batch needs " +
                std::to_string(kRequestsASlot) + " distinct requests for each of its slots: " + std::to_string(wanted) +
                "; name a file with more prompts, or set /workload/repeats to " +
                std::to_string((wanted + prompts.size() - 1) / prompts.size()) +
                ", which serves other samples of each");
  return prompts;
}

// The requests of prompts, one after another.
class Serving {
 public:
  // `further`: the prompts that fill short ones up to /workload/prompt_tokens.
  Serving(const json& run, Workbench& bench, const std::filesystem::path& beside, const std::vector<Prompt>& further)
      : run_(run),
        target_(bench.target_info(run, beside)),
        tokenizer_(bench.tokenizer(target_of(run), beside)),
        chat_(chat_of(run, beside)) {
    const json& w = run["workload"];
    if (!w.contains("prompt_tokens")) return;
    exact_.emplace(w["prompt_tokens"].get<std::size_t>(), further,
                   [this](const std::string& text) { return encoded_prompt(run_, *tokenizer_, chat_, text); });
  }

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
    if (exact_) request.prompt = exact_->of(p);
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
  std::optional<ExactPrompts> exact_;
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
  const std::size_t wanted = kRequestsASlot * run["engine"]["batch"].get<std::size_t>(), repeats = w["repeats"];
  const std::uint64_t samples = run["sampling"]["samples"];
  const auto prompts = prompts_for(w, wanted, beside);
  std::vector<Prompt> further;
  if (w.contains("prompt_tokens"))  // those behind the limit are for other runs
    further = w["limit"] > 0
                  ? prompts
                  : choose_prompts(read_prompts(locate(w["prompts"], beside)), w["categories"], 0, w["skip"]);
  Serving serving(run, bench, beside, further);
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
  const auto prompts = choose_prompts(read_prompts(locate(w["prompts"], beside)), w["categories"], w["skip"]);
  Serving serving(run, bench, beside, prompts);
  for (const Prompt& p : prompts) serving.add(p, 0, 0, serving.size());
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
