#include "experiments/session/engine_loop.h"

#include <atomic>
#include <chrono>
#include <initializer_list>
#include <utility>

#include "kernels/error.h"

namespace foretoken {

struct TokenStream::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<SequenceReport> unread;
  std::optional<Sequence> ended;
  std::atomic<bool> cancelled = false;
  std::function<void()> heard;
  // Of the loop's thread:
  SequenceId id = 0;
  std::string failure = {};  // of the step that it was in; empty: none

  void push(const SequenceReport& report) {
    const std::lock_guard lock(mutex);
    unread.push_back(report);
    tell();
  }
  void end(Sequence sequence) {
    if (!failure.empty()) sequence.fail(failure);
    const std::lock_guard lock(mutex);
    ended = std::move(sequence);
    tell();
  }
  void tell() {
    changed.notify_all();
    if (heard) heard();
  }
  bool ready() const { return !unread.empty() || ended.has_value(); }
  void fail(const std::string& why) {
    failure = why;
    end({});
  }
};

TokenStream& TokenStream::operator=(TokenStream&& other) noexcept {
  cancel();
  state_ = std::move(other.state_);
  return *this;
}

std::optional<SequenceReport> TokenStream::next() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->ready(); });
  if (state_->unread.empty()) return {};
  SequenceReport report = std::move(state_->unread.front());
  state_->unread.pop_front();
  return report;
}

bool TokenStream::ready(double seconds) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return state_->ready(); });
}

void TokenStream::listen(std::function<void()> heard) {
  const std::lock_guard lock(state_->mutex);
  state_->heard.swap(heard);
  if (state_->heard && state_->ready()) state_->heard();
}

const Sequence& TokenStream::ended() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->ended.has_value(); });
  return *state_->ended;
}

void TokenStream::cancel() {
  if (state_) state_->cancelled = true;
}

static EngineLoopOptions checked(EngineLoopOptions options) {
  if (options.waiting == 0)
    throw Error("no request of a loop may wait, so none could be submitted; let one wait or more");
  return options;
}

EngineLoop::EngineLoop(Engine& engine, EngineLoopOptions options)
    : engine_(engine), options_(checked(std::move(options))), streams_(engine), thread_([this] { run(); }) {}

EngineLoop::~EngineLoop() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = cancelling_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EngineLoop::expect_open() const {
  if (!broken_.empty()) throw Error("no request is served any more: " + broken_);
  if (draining_) throw Error("no request is taken any more, since those that are there are to end; start another loop");
}

TokenStream EngineLoop::submit(Request request, const TokenStream* sample_of, std::function<void(SequenceId)> taken) {
  engine_.expect_servable(request);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed() || !full(); });
  return put(std::move(request), sample_of, std::move(taken));
}

std::optional<TokenStream> EngineLoop::try_submit(Request request, const TokenStream* sample_of,
                                                  std::function<void(SequenceId)> taken) {
  engine_.expect_servable(request);
  const std::lock_guard lock(mutex_);
  if (!closed() && full()) return {};
  return put(std::move(request), sample_of, std::move(taken));
}

TokenStream EngineLoop::put(Request request, const TokenStream* sample_of, std::function<void(SequenceId)> taken) {
  expect_open();
  const auto stream = std::make_shared<TokenStream::State>();
  submitted_.push_back({std::move(request), stream, sample_of ? sample_of->state_ : nullptr, std::move(taken)});
  changed_.notify_all();
  return TokenStream(stream);
}

void EngineLoop::drain() {
  std::unique_lock lock(mutex_);
  draining_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return done_; });
}

std::size_t EngineLoop::waiting() const {
  const std::lock_guard lock(mutex_);
  return submitted_.size() + waiting_;
}

std::size_t EngineLoop::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
}

std::string EngineLoop::broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

static thread_local bool on_loop_thread = false;

bool EngineLoop::is_on_loop_thread() { return on_loop_thread; }

void EngineLoop::run() {
  on_loop_thread = true;
  try {
    for (wait_for_work(); !taking_.empty() || !engine_.idle(); wait_for_work()) {
      // Not while a step that failed has left cancelled requests in the engine: theirs may fail again.
      if (!failed_ || engine_.idle())
        for (; !taking_.empty(); taking_.pop_front()) take(taking_.front());
      step();
    }
  } catch (const std::exception& e) {
    give_up(e.what());
  } catch (...) {
    give_up("");
  }
  const std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

// Until there are submissions to take (some may be left of before a step that failed), or the engine is not idle, or
// nothing will come any more.
void EngineLoop::wait_for_work() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return draining_ || !taking_.empty() || !submitted_.empty() || !engine_.idle(); });
  waiting_ += submitted_.size();
  for (Submission& s : submitted_) taking_.push_back(std::move(s));
  submitted_.clear();
  if (cancelling_) {
    for (const Submission& s : taking_) s.stream->cancelled = true;
    streams_.each([](SequenceId, const Stream& stream) { stream->cancelled = true; });
  }
}

void EngineLoop::take(Submission& submission) {
  TokenStream::State& stream = *submission.stream;
  if (submission.sample_of) submission.request.sample_of = submission.sample_of->id;
  try {
    stream.id = streams_.submit(std::move(submission.request), submission.stream);
  } catch (const Error& e) {  // what expect_servable() does not see
    return stream.fail(e.what());
  }
  if (submission.taken) submission.taken(stream.id);
}

void EngineLoop::step() {
  streams_.each([&](SequenceId id, const Stream& stream) {
    if (stream->cancelled) engine_.cancel(id);
  });
  if (engine_.idle()) return count(0, 0);  // it refused what was taken
  if (options_.before_step) options_.before_step();
  StepReport report;
  try {
    report = engine_.step();
  } catch (const std::exception& e) {
    if (failed_) throw Error(std::string("steps fail though all requests were cancelled: ") + e.what());
    failed_ = true;
    streams_.each([&](SequenceId id, const Stream& stream) {
      engine_.cancel(id);
      stream->failure = e.what();
    });
    return;
  }
  failed_ = false;
  if (options_.after_step) options_.after_step(report);
  deliver(report);
}

void EngineLoop::deliver(const StepReport& report) {
  streams_.each_round(report, [](const Stream& stream, const SequenceReport& r) { stream->push(r); });
  streams_.each_end(report, [](const Stream& stream, const Sequence& q) { stream->end(q); });
  count(std::size_t(report.waiting), std::size_t(report.running));
}

void EngineLoop::count(std::size_t waiting, std::size_t running) {
  const std::lock_guard lock(mutex_);
  waiting_ = waiting;
  running_ = running;
  changed_.notify_all();
}

void EngineLoop::give_up(const std::string& why) {
  const std::lock_guard lock(mutex_);
  broken_ = why.empty() ? "unknown" : why;
  streams_.each([&](SequenceId, const Stream& stream) { stream->fail(broken_); });
  for (const auto* submissions : {&taking_, &submitted_})
    for (const Submission& s : *submissions)
      if (!s.stream->ended) s.stream->fail(broken_);
  streams_.let_go();
  taking_.clear();
  submitted_.clear();
  waiting_ = running_ = 0;
}

}  // namespace foretoken
