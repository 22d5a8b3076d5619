#include "experiments/sweep/books.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "experiments/sweep/clock.h"

namespace foretoken {

using nlohmann::json;

namespace {

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

}  // namespace

Books::Books(const std::vector<Job>& jobs, const Loop& loop, const KvCache& cache)
    : jobs_(jobs),
      loop_(loop),
      cache_(cache),
      services_(jobs.size()),
      texts_(jobs.size()),
      to_submit_(std::min(std::size_t(std::ranges::count_if(jobs, [](const Job& j) { return j.after < 0; })),
                          std::size_t(loop.places()))),
      to_start_(to_submit_) {}

void Books::submitted(std::size_t job, SequenceId id, std::size_t prompt_tokens, Clock::time_point arrived) {
  job_of_[id] = job;
  services_[job].submitted = arrived;
  if (to_submit_ > 0) services_[job].fills = true, --to_submit_;
  services_[job].prompt_tokens = long(prompt_tokens);
}

void Books::follows_failed(std::size_t job) {
  Service& s = services_[job];
  s.submitted = s.finished = Clock::now(), s.finish = Finish::failed;
  s.failure = "the turn before it failed";
  start(job, s.finished);
  ++finished_;
}

void Books::left_out(std::size_t job, int context) {
  services_[job].left_out = true, context_ = context;
  ++finished_;
}

void Books::step(const StepReport& report, double wall, double processor, bool steady) {
  const auto now = Clock::now();
  stops_.step(wall, processor);
  if (steady) steady_seconds_ += wall, ++steady_steps_;
  ++steps_, rows_ += report.rows, cut_ += report.cut, preempted_ += report.preempted, recorded_ += report.recorded,
      unrecorded_ += report.unrecorded, phases_ += report.phases;
  add_time(report, steady);
  for (const SequenceReport& r : report.sequences) {
    const std::size_t job = job_of_.at(r.id);
    Service& s = services_[job];
    if (!std::exchange(s.placed, true)) place(s, r, seconds(now - s.submitted) - wall);
    s.share += wall / double(report.sequences.size());
    if (steady) s.steady_share += wall / double(report.sequences.size());
    if (r.judged) add_round(job, r, now, steady);
  }
  for (const Sequence& q : report.finished) end(q, now);
}

// The first step of a request. What it reads again after a preemption, and finds in the cache, was served before.
void Books::place(Service& s, const SequenceReport& r, double waited) const {
  s.queued = std::max(0.0, waited);
  s.from_cache = r.judged ? s.prompt_tokens - 1 - r.prompt_rows : cache_.confirmed(r.id);
}

void Books::add_round(std::size_t job, const SequenceReport& r, Clock::time_point now, bool steady) {
  Service& s = services_[job];
  ++s.rounds, s.drafted += r.drafted, s.tested += r.tested(), s.accepted += r.accepted,
      s.tokens += long(r.emitted.size());
  if (steady) s.steady_tokens += long(r.emitted.size());
  count(drafted_at_, r.depth), count(tested_at_, r.tested()), count(accepted_at_, r.accepted), children_.add(r),
      no_draft_.add(r);
  count(s.tested_at, r.tested()), count(s.accepted_at, r.accepted);
  if (int(histogram_.size()) <= r.accepted) histogram_.resize(std::size_t(r.accepted + 1), 0);
  ++histogram_[std::size_t(r.accepted)];
  if (!s.started)
    start(job, now);
  else
    gaps_.add(seconds(now - s.last));
  s.last = now;
}

void Books::end(const Sequence& q, Clock::time_point now) {
  const std::size_t job = job_of_.at(q.id);
  Service& s = services_[job];
  s.finished = now, s.finish = q.finish, s.failure = q.failure;
  if (!s.started) start(job, now);  // it failed before its first token
  if (q.sampling.logprobs) s.log_probability = std::accumulate(q.logprobs.begin(), q.logprobs.end(), 0.0);
  texts_[job].assign(q.tokens.begin() + q.prompt_length, q.tokens.end());
  ++finished_;
}

Measured Books::close(double wall) {
  json measure{{"seconds", wall},
               {"steps", steps_},
               {"rows", rows_},
               {"cut", cut_},
               {"histogram", histogram_},
               {"drafted_at", drafted_at_},
               {"tested_at", tested_at_},
               {"accepted_at", accepted_at_},
               {"no_draft", no_draft_.as_json()},
               {"offered_children", children_.offered},
               {"accepted_children", children_.accepted},
               {"steps_of_rows", json::array()},
               {"step_blocks", blocks_.as_json()},
               {"preempted", preempted_},
               {"recorded", recorded_},
               {"unrecorded", unrecorded_},
               {"steady", {{"seconds", steady_seconds_}, {"steps", steady_steps_}}},
               {"gaps", gaps_.as_json()},
               {"stopped_seconds", stops_.seconds()},
               {"phases", to_json(phases_)},
               {"requests", json::array()}};
  for (const auto& [rows, steps] : steps_of_rows_) measure["steps_of_rows"].push_back(to_json(rows, steps));
  add_requests(measure), add_left_out(measure);
  std::vector<std::string> failures;
  for (const Service& s : services_) failures.push_back(s.left_out ? "the turn was left out" : s.failure);
  return {std::move(measure), std::move(texts_), std::move(failures)};
}

void Books::add_requests(json& measure) const {
  long prefix_rows = 0;
  for (std::size_t i = 0; i < services_.size(); ++i) {
    const Service& s = services_[i];
    if (s.left_out) continue;
    prefix_rows += s.from_cache;
    measure["requests"].push_back(to_json(jobs_[i], s));
    if (loop_.open()) measure["requests"].back().update({{"arrival", seconds(loop_.arrival(i))}, {"queued", s.queued}});
  }
  measure["prefix_rows"] = prefix_rows;
  if (loop_.open()) measure["idle_seconds"] = idle_seconds_;
  for (const char* key : {"tokens", "rounds", "drafted", "tested", "accepted", "prompt_tokens"}) {
    long total = 0;
    for (const json& r : measure["requests"]) total += r[key].get<long>();
    measure[key] = total;
  }
}

void Books::add_left_out(json& measure) const {
  json turns = json::array();
  for (std::size_t i = 0; i < services_.size(); ++i)
    if (services_[i].left_out) turns.push_back({{"job", i}, {"prompt", jobs_[i].prompt}, {"turn", jobs_[i].turn}});
  if (!turns.empty()) measure["left_out"] = {{"context", context_}, {"turns", std::move(turns)}};
}

void Books::start(std::size_t job, Clock::time_point now) {
  Service& s = services_[job];
  s.started = true, s.first = now, s.first_tokens = s.tokens;
  to_start_ -= s.fills;
}

void Books::add_time(const StepReport& report, bool steady) {
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

}  // namespace foretoken
