// One thread around an Engine: requests come from any thread, and each gets a stream of its tokens. For servers and
// bindings of other languages; a measurement drives EngineRequests on its own thread. This module must not know runs,
// networks, or who asks.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "experiments/session/engine_requests.h"

namespace foretoken {

// The output of one request, as it comes. One thread at a time may read it; it may outlive its loop. Destroyed before
// its request has ended, it cancels it.
class TokenStream {
 public:
  TokenStream(TokenStream&&) noexcept = default;
  TokenStream& operator=(TokenStream&&) noexcept;
  ~TokenStream() { cancel(); }

  // The report of the request's next round that has tokens, or that ended it; waits for it. None once it has ended and
  // everything was read. A stream that nobody reads holds its own output, and holds up no other.
  std::optional<SequenceReport> next();
  // Whether next() and, where next() gives none, ended() return at once; waits at most so many seconds for that. For a
  // caller that must see to other things meanwhile.
  bool ready(double seconds = 0);
  // `heard` is called whenever ready() has become true, on the loop's thread; on this one at once where it is. It must
  // not throw, nor call this stream. Replaces the one before; empty: none.
  void listen(std::function<void()> heard);
  // The request's sequence, whole, with Finish and the reason where it failed; waits for its end. Of a request that
  // never reached the engine it has no tokens.
  const Sequence& ended();
  // Ends the request before the next step, with Finish::cancelled. Ignored once it has ended.
  void cancel();

 private:
  friend class EngineLoop;
  struct State;
  explicit TokenStream(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

struct EngineLoopOptions {
  std::size_t waiting = 1024;  // the most requests that were submitted and are not yet running; at least 1
  // Called on the loop's thread: before each step, when the requests for it have been handed to the engine, and after
  // it. An exception ends the loop as broken().
  std::function<void()> before_step = {};
  std::function<void(const StepReport&)> after_step = {};
};

class EngineLoop {
 public:
  // `engine` must outlive the loop, and belongs to it: nothing else may call it meanwhile.
  explicit EngineLoop(Engine& engine, EngineLoopOptions options = {});
  // Cancels what has not ended.
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;

  // Queues a request for the next step. What the engine refuses of it is an Error, and so is a loop that drains or is
  // broken. Waits while `waiting` requests are not yet running. `sample_of`: the stream of a request submitted before
  // with the same prompt (Request::sample_of). `taken`: called on the loop's thread when the engine has the request,
  // before its first step.
  TokenStream submit(Request request, const TokenStream* sample_of = nullptr,
                     std::function<void(SequenceId)> taken = {});
  // The same without waiting: none where as many requests are waiting.
  std::optional<TokenStream> try_submit(Request request, const TokenStream* sample_of = nullptr,
                                        std::function<void(SequenceId)> taken = {});

  // Takes no more requests, and returns when those that it has have ended.
  void drain();
  // Requests that were submitted and are not yet running, and those that run.
  std::size_t waiting() const;
  std::size_t running() const;
  // Why it serves no more: an exception of a hook, or of a step that failed again after all requests had been
  // cancelled. Empty where it serves.
  std::string broken() const;
  // Whether this thread is that of some loop. It must end no loop: its own would wait for itself, and of two that end
  // each other's each would wait for the other.
  static bool is_on_loop_thread();

 private:
  using Stream = std::shared_ptr<TokenStream::State>;
  struct Submission {
    Request request;
    Stream stream, sample_of;
    std::function<void(SequenceId)> taken;
  };

  void expect_open() const;
  bool full() const { return submitted_.size() + waiting_ >= options_.waiting; }
  bool closed() const { return draining_ || !broken_.empty(); }
  TokenStream put(Request request, const TokenStream* sample_of, std::function<void(SequenceId)> taken);
  void run();
  void wait_for_work();
  void take(Submission& submission);
  void step();
  void deliver(const StepReport& report);
  void count(std::size_t waiting, std::size_t running);
  void give_up(const std::string& why);

  Engine& engine_;
  const EngineLoopOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Submission> submitted_;
  std::size_t waiting_ = 0, running_ = 0;  // of the engine, after the last step
  bool draining_ = false, cancelling_ = false, done_ = false;
  std::string broken_;
  // Of the loop's thread:
  std::deque<Submission> taking_;
  EngineRequests<Stream> streams_;
  bool failed_ = false;  // the last step did
  std::thread thread_;
};

}  // namespace foretoken
