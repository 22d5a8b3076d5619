#include "experiments/sweep/measure_recorder.h"

#include <algorithm>
#include <ctime>
#include <numeric>

#include "experiments/report/statistics.h"

namespace foretoken {

namespace {

// Seconds: steps may lack a processor for so long, and sleeps end so late, where other processes run.
constexpr double kLeast = 0.1, kLate = 0.5;

}  // namespace

double processor_seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

void Stops::woke(double late) {
  if (late > kLate) overslept_ += late;
}

double Stops::seconds() const {
  constexpr double kBusy = 0.25;
  std::vector<double> busy;
  for (const auto& [wall, processor] : steps_) busy.push_back(processor / wall);
  const double usual = median(std::move(busy));
  double sum = overslept_;
  for (const auto& [wall, processor] : steps_)
    if (const double lost = wall - processor / usual; lost > kLeast && processor < kBusy * usual * wall) sum += lost;
  return sum;
}

BlockTimes StepBlocks::times() const {
  constexpr std::size_t kLeast = 8, kMost = 32;  // steps of a block; blocks
  const auto of_most = std::ranges::max_element(steps_, {}, [](const auto& of_rows) { return of_rows.second.size(); });
  BlockTimes found{.rows = 0, .steps = kLeast, .seconds = {}, .context = {}};
  if (of_most == steps_.end()) return found;
  const auto& [rows, steps] = *of_most;
  const std::size_t size = std::max(kLeast, (steps.size() + kMost - 1) / kMost);
  found.rows = rows;
  found.steps = long(size);
  for (std::size_t begin = 0; begin + size <= steps.size(); begin += size) {
    std::vector<double> times;
    double context = 0;
    for (std::size_t i = begin; i < begin + size; ++i) {
      times.push_back(steps[i].seconds);
      context += steps[i].context / double(size);
    }
    found.seconds.push_back(median(std::move(times)));
    found.context.push_back(context);
  }
  return found;
}

MeasureRecorder::MeasureRecorder(const std::vector<Job>& jobs, const Loop& loop, const KvCache& cache,
                                 const EngineRequests<std::size_t>& served)
    : loop_(loop),
      cache_(cache),
      services_(jobs.size()),
      outputs_(jobs.size()),
      served_(served),
      to_submit_(std::min(std::size_t(std::ranges::count_if(jobs, [](const Job& j) { return j.after < 0; })),
                          std::size_t(loop.slots()))),
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

void MeasureRecorder::submitted(std::size_t job, std::size_t prompt_tokens, Clock::time_point arrived) {
  services_[job].submitted = arrived;
  services_[job].fills = to_submit_ > 0;
  to_submit_ -= services_[job].fills;
  services_[job].record.prompt_tokens = long(prompt_tokens);
}

void MeasureRecorder::follows_failed(std::size_t job) {
  ServedRequest& s = services_[job];
  s.submitted = s.finished = Clock::now();
  s.record.finish = name_of(Finish::failed);
  s.record.failure = "the turn before it failed";
  start(job, s.finished);
  ++finished_;
}

void MeasureRecorder::left_out(std::size_t job, int context) {
  services_[job].left_out = true;
  if (!record_.left_out) record_.left_out.emplace();
  record_.left_out->context = context;
  ++finished_;
}

void MeasureRecorder::step(const StepReport& report, double wall, double processor, bool steady) {
  const auto now = Clock::now();
  stops_.step(wall, processor);
  if (steady) {
    steady_.seconds += wall;
    ++steady_.steps;
  }
  ++record_.steps;
  record_.rows += report.rows;
  record_.cut += report.cut;
  record_.preempted += report.preempted;
  *record_.recorded += report.recorded;
  *record_.unrecorded += report.unrecorded;
  record_.phases += report.phases;
  add_time(report, steady);
  for (const SequenceReport& r : report.sequences) {
    const std::size_t job = served_.of(r.id);
    ServedRequest& s = services_[job];
    if (!std::exchange(s.placed, true)) place(s, r, seconds(now - s.submitted) - wall);
    s.record.share_seconds += wall / double(report.sequences.size());
    if (steady) *s.record.steady_seconds += wall / double(report.sequences.size());
    if (r.judged) add_round(job, r, now, steady);
  }
  for (const Sequence& q : report.finished) end(q, now);
}

// The first step of a request. What it reads again after a preemption, and finds in the cache, was served before.
void MeasureRecorder::place(ServedRequest& s, const SequenceReport& r, double waited) const {
  if (loop_.open()) s.record.queued = std::max(0.0, waited);
  s.from_cache = r.judged ? s.record.prompt_tokens - 1 - r.prompt_rows : cache_.confirmed(r.id);
}

void MeasureRecorder::add_round(std::size_t job, const SequenceReport& r, Clock::time_point now, bool steady) {
  ServedRequest& s = services_[job];
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

void MeasureRecorder::end(const Sequence& q, Clock::time_point now) {
  const std::size_t job = served_.of(q.id);
  ServedRequest& s = services_[job];
  s.finished = now;
  s.record.finish = name_of(q.finish);
  if (q.finish == Finish::failed) s.record.failure = q.failure;
  if (!s.started) start(job, now);  // it failed before its first token
  if (q.sampling.logprobs) s.record.log_probability = std::accumulate(q.logprobs.begin(), q.logprobs.end(), 0.0);
  outputs_[job].assign(q.tokens.begin() + q.prompt_length, q.tokens.end());
  ++finished_;
}

Measured MeasureRecorder::close(double wall) {
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
  for (const ServedRequest& s : services_)
    failures.push_back(s.left_out ? "the turn was left out" : s.record.failure.value_or(""));
  add_requests();
  return {std::move(record_), std::move(outputs_), std::move(failures)};
}

void MeasureRecorder::add_requests() {
  for (std::size_t i = 0; i < services_.size(); ++i) {
    ServedRequest& s = services_[i];
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

void MeasureRecorder::start(std::size_t job, Clock::time_point now) {
  ServedRequest& s = services_[job];
  s.started = true;
  s.first = now;
  s.record.first_tokens = s.record.tokens;
  to_start_ -= s.fills;
}

void MeasureRecorder::add_time(const StepReport& report, bool steady) {
  const bool prompts = std::ranges::any_of(report.sequences, [](const auto& r) { return r.prompt_rows > 0; });
  const bool judged = std::ranges::any_of(report.sequences, [](const auto& r) { return r.judged; });
  if (prompts || report.recorded > 0 || report.rows == 0 || !judged) return;
  StepsOfRows& s = steps_of_rows_[report.rows];
  int levels = 0;
  for (const SequenceReport& r : report.sequences) {
    s.sequences += r.judged;
    s.drafted += r.drafted;
    levels = std::max(levels, r.depth);
  }
  s.rows = report.rows;
  ++s.steps;
  s.levels += levels;
  s.seconds += report.phases.total;
  const double drafting = report.phases.draft_forward + report.phases.draft_other;
  s.draft_seconds += drafting;
  if (!steady) return;
  double context = 0;
  for (const SequenceReport& r : report.sequences) {
    const ServedRequest& service = services_[served_.of(r.id)];
    context += double(service.record.prompt_tokens + service.record.tokens);
  }
  blocks_.add(report.rows, report.phases.total - drafting, context);
}

}  // namespace foretoken
