#include "experiments/sweep/books.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "experiments/sweep/clock.h"

namespace foretoken {

Books::Books(const std::vector<Job>& jobs, const Loop& loop, const KvCache& cache)
    : jobs_(jobs),
      loop_(loop),
      cache_(cache),
      services_(jobs.size()),
      texts_(jobs.size()),
      to_submit_(std::min(std::size_t(std::ranges::count_if(jobs, [](const Job& j) { return j.after < 0; })),
                          std::size_t(loop.places()))),
      to_start_(to_submit_) {
  record_.recorded = record_.unrecorded = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    RequestRecord& r = services_[i].record;
    r.prompt = jobs[i].prompt;
    r.turn = jobs[i].turn;
    if (!jobs[i].category.empty()) r.category = jobs[i].category;
    r.tested_at.emplace();
    r.accepted_at.emplace();
    r.steady_tokens = 0;
    r.steady_seconds = 0;
    r.finish = name_of(Finish::running);
  }
}

void Books::submitted(std::size_t job, SequenceId id, std::size_t prompt_tokens, Clock::time_point arrived) {
  job_of_[id] = job;
  services_[job].submitted = arrived;
  if (to_submit_ > 0) services_[job].fills = true, --to_submit_;
  services_[job].record.prompt_tokens = long(prompt_tokens);
}

void Books::follows_failed(std::size_t job) {
  Service& s = services_[job];
  s.submitted = s.finished = Clock::now();
  s.record.finish = name_of(Finish::failed);
  s.record.failure = "the turn before it failed";
  start(job, s.finished);
  ++finished_;
}

void Books::left_out(std::size_t job, int context) {
  services_[job].left_out = true;
  if (!record_.left_out) record_.left_out.emplace();
  record_.left_out->context = context;
  ++finished_;
}

void Books::step(const StepReport& report, double wall, double processor, bool steady) {
  const auto now = Clock::now();
  stops_.step(wall, processor);
  if (steady) steady_.seconds += wall, ++steady_.steps;
  ++record_.steps;
  record_.rows += report.rows;
  record_.cut += report.cut;
  record_.preempted += report.preempted;
  *record_.recorded += report.recorded;
  *record_.unrecorded += report.unrecorded;
  record_.phases += report.phases;
  add_time(report, steady);
  for (const SequenceReport& r : report.sequences) {
    const std::size_t job = job_of_.at(r.id);
    Service& s = services_[job];
    if (!std::exchange(s.placed, true)) place(s, r, seconds(now - s.submitted) - wall);
    s.record.share_seconds += wall / double(report.sequences.size());
    if (steady) *s.record.steady_seconds += wall / double(report.sequences.size());
    if (r.judged) add_round(job, r, now, steady);
  }
  for (const Sequence& q : report.finished) end(q, now);
}

// The first step of a request. What it reads again after a preemption, and finds in the cache, was served before.
void Books::place(Service& s, const SequenceReport& r, double waited) const {
  if (loop_.open()) s.record.queued = std::max(0.0, waited);
  s.from_cache = r.judged ? s.record.prompt_tokens - 1 - r.prompt_rows : cache_.confirmed(r.id);
}

void Books::add_round(std::size_t job, const SequenceReport& r, Clock::time_point now, bool steady) {
  Service& s = services_[job];
  RequestRecord& own = s.record;
  ++own.rounds;
  own.drafted += r.drafted;
  own.tested += r.tested();
  own.accepted += r.accepted;
  own.tokens += long(r.emitted.size());
  if (steady) *own.steady_tokens += long(r.emitted.size());
  count(*own.tested_at, r.tested());
  count(*own.accepted_at, r.accepted);
  count(record_.drafted_at, r.depth);
  count(record_.tested_at, r.tested());
  count(record_.accepted_at, r.accepted);
  children_.add(r);
  no_draft_.add(r);
  if (int(record_.histogram.size()) <= r.accepted) record_.histogram.resize(std::size_t(r.accepted + 1), 0);
  ++record_.histogram[std::size_t(r.accepted)];
  if (!s.started)
    start(job, now);
  else
    gaps_.add(seconds(now - s.last));
  s.last = now;
}

void Books::end(const Sequence& q, Clock::time_point now) {
  const std::size_t job = job_of_.at(q.id);
  Service& s = services_[job];
  s.finished = now;
  s.record.finish = name_of(q.finish);
  if (q.finish == Finish::failed) s.record.failure = q.failure;
  if (!s.started) start(job, now);  // it failed before its first token
  if (q.sampling.logprobs) s.record.log_probability = std::accumulate(q.logprobs.begin(), q.logprobs.end(), 0.0);
  texts_[job].assign(q.tokens.begin() + q.prompt_length, q.tokens.end());
  ++finished_;
}

Measured Books::close(double wall) {
  record_.seconds = wall;
  record_.no_draft = no_draft_.by_reason();
  record_.offered_children = children_.offered;
  record_.accepted_children = children_.accepted;
  for (const auto& [rows, steps] : steps_of_rows_) record_.steps_of_rows.push_back(steps);
  record_.step_blocks = blocks_.times();
  record_.steady = steady_;
  record_.gaps = gaps_.by_bin();
  record_.stopped_seconds = stops_.seconds();
  if (loop_.open()) record_.idle_seconds = idle_seconds_;
  std::vector<std::string> failures;
  for (const Service& s : services_)
    failures.push_back(s.left_out ? "the turn was left out" : s.record.failure.value_or(""));
  add_requests();
  return {std::move(record_), std::move(texts_), std::move(failures)};
}

void Books::add_requests() {
  for (std::size_t i = 0; i < services_.size(); ++i) {
    Service& s = services_[i];
    RequestRecord& r = s.record;
    if (s.left_out) {
      record_.left_out->turns.push_back({.job = long(i), .prompt = r.prompt, .turn = r.turn});
      continue;
    }
    r.seconds = seconds(s.finished - s.submitted);
    r.decode_seconds = seconds(s.finished - s.first);
    r.ttft = seconds(s.first - s.submitted);
    if (loop_.open()) {
      r.arrival = seconds(loop_.arrival(i));
      r.queued = r.queued.value_or(0);
    }
    record_.prefix_rows += s.from_cache;
    record_.tokens += r.tokens;
    record_.rounds += r.rounds;
    record_.drafted += r.drafted;
    record_.tested += r.tested;
    record_.accepted += r.accepted;
    record_.prompt_tokens += r.prompt_tokens;
    record_.requests.push_back(std::move(r));
  }
}

void Books::start(std::size_t job, Clock::time_point now) {
  Service& s = services_[job];
  s.started = true, s.first = now, s.record.first_tokens = s.record.tokens;
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
  s.rows = report.rows;
  ++s.steps;
  s.levels += levels;
  s.seconds += report.phases.total;
  const double drafting = report.phases.draft_forward + report.phases.draft_other;
  s.draft_seconds += drafting;
  if (!steady) return;
  double context = 0;
  for (const SequenceReport& r : report.sequences) {
    const Service& service = services_[job_of_.at(r.id)];
    context += double(service.record.prompt_tokens + service.record.tokens);
  }
  blocks_.add(report.rows, report.phases.total - drafting, context);
}

}  // namespace foretoken
