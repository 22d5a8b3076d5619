#include "experiments/sweep/measure.h"

#include <chrono>
#include <utility>

#include <spdlog/spdlog.h>

#include "experiments/sweep/books.h"
#include "experiments/sweep/clock.h"
#include "experiments/sweep/conversations.h"
#include "experiments/sweep/engine_memory.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

using Clock = Loop::Clock;

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
    while (waiting_.ready() && loop_.due(count_, books_.finished(), Clock::now() - start_)) {
      const std::size_t job = waiting_.next();
      std::vector<Token> prompt = waiting_.prompt(job);
      const std::size_t tokens = prompt.size();
      if (const int context = engine_.target().info().positions;
          jobs_[job].after >= 0 && tokens >= std::size_t(context)) {
        for (const std::size_t turn : waiting_.from(job)) books_.left_out(turn, context), ++count_;
        continue;
      }
      const int first = jobs_[job].first;
      ids_[job] = submit(engine_, jobs_[job], std::move(prompt), first >= 0 ? ids_[std::size_t(first)] : 0);
      books_.submitted(job, ids_[job], tokens, loop_.open() ? next_arrival() : Clock::now());
      ++count_;
    }
  }
  void ended(const Sequence& q) {
    for (const std::size_t job : waiting_.ended(books_.job_of(q.id), q)) books_.follows_failed(job), ++count_;
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
  Books books(jobs, loop, engine.target().cache());
  EngineMemory memory(engine);
  const bool doubted = !engine.doubt().empty();  // and said so
  const auto tell = [&] { after_step(double(books.finished()) / double(jobs.size())); };
  Submissions submissions(engine, jobs, loop, books);
  auto last = submissions.start();
  double processor = processor_seconds();
  while (books.finished() < jobs.size()) {
    submissions.submit_due();
    if (engine.idle() && books.finished() == jobs.size()) break;  // the last ones were left out
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
  Measured found = books.close(seconds(last - submissions.start()));
  found.record.memory = memory.figures();
  if (const std::string doubt = engine.doubt(); !doubt.empty()) {
    found.record.doubt = doubt;
    if (!doubted) spdlog::warn("{}", doubt);
  }
  if (const std::string notice = engine.notice(); !notice.empty()) found.record.notice = notice;
  return found;
}

}  // namespace foretoken
