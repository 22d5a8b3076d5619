#include "experiments/sweep/measure.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <utility>

#include <spdlog/spdlog.h>
#include <xxhash.h>

#include "experiments/report/described.h"
#include "experiments/sweep/measure_recorder.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using Clock = Loop::Clock;

// Submits requests when they are due.
class Submissions {
 public:
  // `context`: of the target, in tokens.
  Submissions(EngineRequests<std::size_t>& served, int context, const std::vector<Job>& jobs, const Loop& loop,
              MeasureRecorder& recorder)
      : served_(served),
        context_(context),
        jobs_(jobs),
        loop_(loop),
        recorder_(recorder),
        waiting_(jobs),
        ids_(jobs.size()) {}

  void submit_due() {
    while (waiting_.ready() && loop_.due(count_, recorder_.finished(), Clock::now() - start_)) {
      const std::size_t job = waiting_.next();
      std::vector<Token> prompt = waiting_.prompt(job);
      if (jobs_[job].after >= 0 && prompt.size() >= std::size_t(context_))
        leave_out(job);
      else
        submit(job, std::move(prompt));
    }
  }
  void ended(std::size_t ended, const Sequence& q) {
    for (const std::size_t job : waiting_.ended(ended, q)) {
      recorder_.follows_failed(job);
      ++count_;
    }
  }
  // Of an open loop.
  Clock::time_point next_arrival() const { return start_ + loop_.arrival(count_); }
  Clock::time_point start() const { return start_; }

 private:
  void leave_out(std::size_t job) {
    for (const std::size_t turn : waiting_.from(job)) {
      recorder_.left_out(turn, context_);
      ++count_;
    }
  }
  void submit(std::size_t job, std::vector<Token> prompt) {
    const std::size_t tokens = prompt.size();
    Request request = jobs_[job].request;
    request.prompt = std::move(prompt);
    request.sample_of = jobs_[job].first >= 0 ? ids_[std::size_t(jobs_[job].first)] : 0;
    try {
      ids_[job] = served_.submit(std::move(request), job);
    } catch (const Error& e) {
      throw Error("prompt " + std::to_string(jobs_[job].prompt + 1) + " of the workload: " + e.what());
    }
    recorder_.submitted(job, tokens, loop_.open() ? next_arrival() : Clock::now());
    ++count_;
  }

  EngineRequests<std::size_t>& served_;  // each request's job
  const int context_;
  const std::vector<Job>& jobs_;
  const Loop& loop_;
  MeasureRecorder& recorder_;
  Conversations waiting_;
  std::vector<SequenceId> ids_;
  std::size_t count_ = 0;  // submitted or left out
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

Measured measure(Engine& engine, const std::vector<Job>& jobs, const Loop& loop,
                 const std::function<void(double)>& after_step, const std::function<void(const StepReport&)>& watch) {
  EngineRequests<std::size_t> served(engine);
  MeasureRecorder recorder(jobs, loop, engine.target().cache(), served);
  EngineMemory memory(engine);
  const bool doubted = !engine.doubt().empty();  // and said so
  const auto tell = [&] { after_step(double(recorder.finished()) / double(jobs.size())); };
  Submissions submissions(served, engine.target().info().positions, jobs, loop, recorder);
  auto last = submissions.start();
  double processor = processor_seconds();
  while (recorder.finished() < jobs.size()) {
    submissions.submit_due();
    if (engine.idle() && recorder.finished() == jobs.size()) break;  // the last ones were left out
    if (engine.idle()) {
      sleep_until(submissions.next_arrival(), tell);
      const auto now = Clock::now();
      recorder.slept(seconds(now - std::exchange(last, now)), seconds(now - submissions.next_arrival()));
      processor = processor_seconds();
      continue;
    }
    const bool filled = recorder.filled();
    const StepReport report = engine.step();
    const bool steady = filled && report.sequences.size() == std::size_t(loop.slots());  // none waits for pages
    const auto now = Clock::now();
    const double used = processor_seconds();
    recorder.step(report, seconds(now - std::exchange(last, now)), used - std::exchange(processor, used), steady);
    served.each_end(report, [&](std::size_t job, const Sequence& q) { submissions.ended(job, q); });
    memory.step(report);
    watch(report);
    tell();
  }
  // Until the last step ended, as the requests' shares are: what follows it is bookkeeping.
  Measured found = recorder.close(seconds(last - submissions.start()));
  found.record.memory = memory.figures();
  if (const std::string doubt = engine.doubt(); !doubt.empty()) {
    found.record.doubt = doubt;
    if (!doubted) spdlog::warn("{}", doubt);
  }
  if (const std::string notice = engine.notice(); !notice.empty()) found.record.notice = notice;
  return found;
}

EngineMemory::EngineMemory(Engine& engine)
    : engine_(engine), before_(engine.host().backend().memory().held), kept_(output_bytes()) {
  engine.host().backend().restart_peak();
}

void EngineMemory::step(const StepReport& report) { most_pages_ = std::max(most_pages_, report.pages_in_use); }

MemoryUsed EngineMemory::figures() const {
  const MemoryUse use = engine_.host().backend().memory();
  const PagePool& pool = engine_.pool();
  MemoryUsed found{.target_weights = engine_.target().info().memory(),
                   .draft_weights = draft_weights(),
                   .cache = pool.memory().bytes(),
                   .cache_used = most_pages_ * pool.page_bytes(),
                   .states_per_token = states_per_token(),
                   .scratch = std::nullopt};
  if (use.most > 0) found.scratch = use.most - before_ + kept_;
  return found;
}

std::int64_t EngineMemory::states_per_token() const {
  const ModelInfo& target = engine_.target().info();
  return with_taps(target, engine_.target().taps()).bytes_per_row() - target.kv.bytes_per_row();
}

std::int64_t EngineMemory::draft_weights() const {
  std::set<std::uint64_t> counted = {engine_.target().model()->serial()};
  std::int64_t bytes = 0;
  for (const auto& books : engine_.host().books())
    if (counted.insert(books->weights().serial).second) bytes += books->weights().bytes;
  return bytes;
}

// A model keeps this memory from one engine to the next, so that it may have been there before.
std::int64_t EngineMemory::output_bytes() const {
  std::int64_t bytes = engine_.target().books()->output_bytes();
  for (const auto& books : engine_.host().books()) bytes += books->output_bytes();
  return bytes;
}

HashedOutputs outputs_of(const Measured& measured) {
  HashedOutputs hashes(measured.outputs.size());
  for (std::size_t i = 0; i < hashes.size(); ++i)
    if (measured.failures[i].empty())
      hashes[i] = XXH3_64bits(measured.outputs[i].data(), measured.outputs[i].size() * sizeof(Token));
  return hashes;
}

std::string hash_of_outputs(const HashedOutputs& outputs) {
  const std::string all = described::written(outputs).dump();
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(XXH3_64bits(all.data(), all.size())));
  return std::string("xxh3:") + hex;
}

void compare_outputs(const HashedOutputs& a, const HashedOutputs& b, Agreement& agreement) {
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
  const HashedOutputs outputs = outputs_of(taken.measured);
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
  const HashedOutputs& outputs = measured.outputs;
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
