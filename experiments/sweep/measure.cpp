#include "experiments/sweep/measure.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "experiments/report/time_counts.h"
#include "experiments/sweep/clock.h"
#include "experiments/sweep/conversations.h"
#include "experiments/sweep/engine_memory.h"
#include "experiments/sweep/service.h"
#include "experiments/sweep/step_blocks.h"
#include "experiments/sweep/step_counts.h"
#include "experiments/sweep/stops.h"
#include "kernels/error.h"

namespace foretoken {

using nlohmann::json;

namespace {

using Clock = Loop::Clock;

json to_json(int rows, const StepsOfRows& s) {
  return {{"rows", rows},        {"steps", s.steps},     {"sequences", s.sequences},
          {"levels", s.levels},  {"drafted", s.drafted}, {"draft_seconds", s.draft_seconds},
          {"seconds", s.seconds}};
}

json to_json(const Phases& p) {
  return {{"schedule", p.schedule},
          {"draft_forward", p.draft_forward},
          {"draft_other", p.draft_other},
          {"target_forward", p.target_forward},
          {"verify", p.verify},
          {"deliver", p.deliver},
          {"total", p.total}};
}

// Sums the reports of the steps.
class Books {
 public:
  Books(const std::vector<Job>& jobs, const Loop& loop)
      : jobs_(jobs),
        loop_(loop),
        services_(jobs.size()),
        texts_(jobs.size()),
        to_submit_(std::min(std::size_t(std::ranges::count_if(jobs, [](const Job& j) { return j.after < 0; })),
                            std::size_t(loop.places()))),
        to_start_(to_submit_) {}

  // Whether the requests that came first, as many as there are places, have all emitted.
  bool filled() const { return to_start_ == 0; }

  // `arrived`: what its times count from.
  void submitted(std::size_t job, SequenceId id, std::size_t prompt_tokens, Clock::time_point arrived) {
    job_of_[id] = job;
    services_[job].submitted = arrived;
    if (to_submit_ > 0) services_[job].fills = true, --to_submit_;
    services_[job].prompt_tokens = long(prompt_tokens);
  }

  // A turn of a conversation whose turn before failed.
  void left_out(std::size_t job) {
    Service& s = services_[job];
    s.submitted = s.finished = Clock::now(), s.finish = Finish::failed;
    s.failure = "the turn before it failed";
    start(job, s.finished);
    ++finished_;
  }

  std::size_t job_of(SequenceId id) const { return job_of_.at(id); }

  // Nothing was running; it woke up so late for the next arrival.
  void slept(double wall, double late) { idle_seconds_ += wall, stops_.woke(late); }

  // `steady`: all places were taken, by requests of which the first ones had emitted.
  void step(const StepReport& report, double wall, double processor, bool steady) {
    const auto now = Clock::now();
    stops_.step(wall, processor);
    if (steady) steady_seconds_ += wall, ++steady_steps_;
    ++steps_, rows_ += report.rows, cut_ += report.cut, preempted_ += report.preempted, recorded_ += report.recorded,
        phases_ += report.phases;
    add_time(report, steady);
    for (const SequenceReport& r : report.sequences) {
      Service& s = services_[job_of_.at(r.id)];
      if (!std::exchange(s.placed, true)) s.queued = std::max(0.0, seconds(now - s.submitted) - wall);
      s.share += wall / double(report.sequences.size());
      if (steady) s.steady_share += wall / double(report.sequences.size());
      if (!r.judged) continue;
      ++s.rounds, s.drafted += r.drafted, s.tested += r.tested(), s.accepted += r.accepted,
          s.tokens += long(r.emitted.size());
      if (steady) s.steady_tokens += long(r.emitted.size());
      count(drafted_at_, r.depth), count(tested_at_, r.tested()), count(accepted_at_, r.accepted), children_.add(r);
      count(s.tested_at, r.tested()), count(s.accepted_at, r.accepted);
      if (int(histogram_.size()) <= r.accepted) histogram_.resize(std::size_t(r.accepted + 1), 0);
      ++histogram_[std::size_t(r.accepted)];
      if (!s.started)
        start(job_of_.at(r.id), now);
      else
        gaps_.add(seconds(now - s.last));
      s.last = now;
    }
    for (const Sequence& q : report.finished) {
      const std::size_t job = job_of_.at(q.id);
      Service& s = services_[job];
      s.finished = now, s.finish = q.finish, s.failure = q.failure;
      if (!s.started) start(job, now);  // it failed before its first token
      if (q.sampling.logprobs) s.log_probability = std::accumulate(q.logprobs.begin(), q.logprobs.end(), 0.0);
      texts_[job].assign(q.tokens.begin() + q.prompt_length, q.tokens.end());
      ++finished_;
    }
  }

  std::size_t finished() const { return finished_; }

  Measured close(double wall, std::uint64_t prefix_rows) {
    json measure{{"seconds", wall},
                 {"steps", steps_},
                 {"rows", rows_},
                 {"cut", cut_},
                 {"histogram", histogram_},
                 {"drafted_at", drafted_at_},
                 {"tested_at", tested_at_},
                 {"accepted_at", accepted_at_},
                 {"offered_children", children_.offered},
                 {"accepted_children", children_.accepted},
                 {"steps_of_rows", json::array()},
                 {"step_blocks", blocks_.as_json()},
                 {"preempted", preempted_},
                 {"recorded", recorded_},
                 {"prefix_rows", prefix_rows},
                 {"steady", {{"seconds", steady_seconds_}, {"steps", steady_steps_}}},
                 {"gaps", gaps_.as_json()},
                 {"stopped_seconds", stops_.seconds()},
                 {"phases", to_json(phases_)},
                 {"requests", json::array()}};
    for (const auto& [rows, steps] : steps_of_rows_) measure["steps_of_rows"].push_back(to_json(rows, steps));
    for (std::size_t i = 0; i < services_.size(); ++i) measure["requests"].push_back(to_json(jobs_[i], services_[i]));
    if (loop_.open()) add_arrivals(measure);
    for (const char* key : {"tokens", "rounds", "drafted", "tested", "accepted", "prompt_tokens"}) {
      long total = 0;
      for (const json& r : measure["requests"]) total += r[key].get<long>();
      measure[key] = total;
    }
    std::vector<std::string> failures;
    for (const Service& s : services_) failures.push_back(s.failure);
    return {std::move(measure), std::move(texts_), std::move(failures)};
  }

 private:
  void add_arrivals(json& measure) const {
    measure["idle_seconds"] = idle_seconds_;
    for (std::size_t i = 0; i < services_.size(); ++i)
      measure["requests"][i].update({{"arrival", seconds(loop_.arrival(i))}, {"queued", services_[i].queued}});
  }

  void start(std::size_t job, Clock::time_point now) {
    Service& s = services_[job];
    s.started = true, s.first = now, s.first_tokens = s.tokens;
    to_start_ -= s.fills;
  }

  void add_time(const StepReport& report, bool steady) {
    const bool prompts = std::ranges::any_of(report.sequences, [](const auto& r) { return r.prompt_rows > 0; });
    const bool judged = std::ranges::any_of(report.sequences, [](const auto& r) { return r.judged; });
    if (prompts || report.recorded > 0 || report.rows == 0 || !judged) return;
    StepsOfRows& s = steps_of_rows_[report.rows];
    int levels = 0;
    for (const SequenceReport& r : report.sequences)
      s.sequences += r.judged, s.drafted += r.drafted, levels = std::max(levels, r.depth);
    ++s.steps, s.levels += levels, s.seconds += report.phases.total;
    const double drafting = report.phases.draft_forward + report.phases.draft_other;
    s.draft_seconds += drafting;
    if (!steady) return;
    double context = 0;
    for (const SequenceReport& r : report.sequences) {
      const Service& service = services_[job_of_.at(r.id)];
      context += double(service.prompt_tokens + service.tokens);
    }
    blocks_.add(report.rows, report.phases.total - drafting, context);
  }

  const std::vector<Job>& jobs_;
  const Loop& loop_;
  std::vector<Service> services_;
  std::vector<std::vector<Token>> texts_;
  std::unordered_map<SequenceId, std::size_t> job_of_;
  std::size_t to_submit_ = 0, to_start_ = 0;  // of the requests that first fill the places
  Phases phases_;
  Stops stops_;
  TimeCounts gaps_;  // between a request's rounds
  double steady_seconds_ = 0, idle_seconds_ = 0;
  long steady_steps_ = 0;
  std::vector<long> histogram_, drafted_at_, tested_at_, accepted_at_;
  ChildCounts children_;
  std::map<int, StepsOfRows> steps_of_rows_;
  StepBlocks blocks_;  // of the steady window
  long steps_ = 0, rows_ = 0, cut_ = 0, preempted_ = 0, recorded_ = 0;
  std::size_t finished_ = 0;
};

// `first`: the request of which it is another sample; 0: none.
SequenceId submit(Engine& engine, const Job& job, std::vector<Token> prompt, SequenceId first) {
  try {
    Request request = job.request;
    request.prompt = std::move(prompt);
    request.like = first;
    return engine.submit(std::move(request));
  } catch (const Error& e) {
    throw Error("prompt " + std::to_string(job.prompt + 1) + " of the workload: " + e.what());
  }
}

// Submits requests when they are due.
class Submissions {
 public:
  Submissions(Engine& engine, const std::vector<Job>& jobs, const Loop& loop, Books& books)
      : engine_(engine), jobs_(jobs), loop_(loop), books_(books), waiting_(jobs), ids_(jobs.size()) {}

  void submit_due() {
    for (; waiting_.ready() && loop_.due(count_, books_.finished(), Clock::now() - start_); ++count_) {
      const std::size_t job = waiting_.next();
      const int first = jobs_[job].first;
      std::vector<Token> prompt = waiting_.prompt(job);
      const std::size_t tokens = prompt.size();
      ids_[job] = submit(engine_, jobs_[job], std::move(prompt), first >= 0 ? ids_[std::size_t(first)] : 0);
      books_.submitted(job, ids_[job], tokens, loop_.open() ? next_arrival() : Clock::now());
    }
  }
  void ended(const Sequence& q) {
    for (const std::size_t job : waiting_.ended(books_.job_of(q.id), q)) books_.left_out(job), ++count_;
  }
  // Of an open loop.
  Clock::time_point next_arrival() const { return start_ + loop_.arrival(count_); }
  Clock::time_point start() const { return start_; }

 private:
  Engine& engine_;
  const std::vector<Job>& jobs_;
  const Loop& loop_;
  Books& books_;
  Conversations waiting_;
  std::vector<SequenceId> ids_;
  std::size_t count_ = 0;  // submitted or left out
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

Measured measure(Engine& engine, const std::vector<Job>& jobs, const Loop& loop,
                 const std::function<void(double)>& after_step, const std::function<void(const StepReport&)>& watch) {
  Books books(jobs, loop);
  EngineMemory memory(engine);
  const std::uint64_t prefix_before = engine.target().cache().prefix_rows_reused();
  const auto tell = [&] { after_step(double(books.finished()) / double(jobs.size())); };
  Submissions submissions(engine, jobs, loop, books);
  auto last = submissions.start();
  double processor = processor_seconds();
  while (books.finished() < jobs.size()) {
    submissions.submit_due();
    if (engine.idle()) {
      sleep_until(submissions.next_arrival(), tell);
      const auto now = Clock::now();
      books.slept(seconds(now - std::exchange(last, now)), seconds(now - submissions.next_arrival()));
      processor = processor_seconds();
      continue;
    }
    const bool filled = books.filled();
    const StepReport report = engine.step();
    const bool steady = filled && report.sequences.size() == std::size_t(loop.places());  // none waits for pages
    const auto now = Clock::now();
    const double used = processor_seconds();
    books.step(report, seconds(now - std::exchange(last, now)), used - std::exchange(processor, used), steady);
    for (const Sequence& q : report.finished) submissions.ended(q);
    memory.step(report);
    watch(report);
    tell();
  }
  // Until the last step ended, as the requests' shares are: what follows it is bookkeeping.
  Measured found =
      books.close(seconds(last - submissions.start()), engine.target().cache().prefix_rows_reused() - prefix_before);
  found.measure["memory"] = memory.figures();
  return found;
}

}  // namespace foretoken
