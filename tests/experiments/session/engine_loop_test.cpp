// Streams of a loop around an engine, from many threads.
#include "experiments/session/engine_loop.h"

#include <atomic>
#include <thread>

#include "kernels/reference/reference_backend.h"
#include "tests/framework/engine/engine_scenario.h"

namespace foretoken::test {
namespace {

using Tokens = std::vector<Token>;

// A device that fails so many times.
class FailingDevice final : public ReferenceBackend {
 public:
  std::atomic<int> failures = 0;
  void synchronize() override {
    if (failures > 0) {
      --failures;
      throw Error("the device is lost");
    }
    ReferenceBackend::synchronize();
  }
};

struct EngineLoops : EngineScenario {
  std::unique_ptr<Engine> served = engine();

  static Request numbered(int i, int max_new_tokens = 12) {
    Request r = request({Token(i % 5), Token((i / 5) % 5), 1}, max_new_tokens);
    r.stream = std::uint64_t(i);
    return r;
  }
  static Tokens output_of(TokenStream& stream) {
    Tokens all;
    while (const auto report = stream.next()) all.insert(all.end(), report->emitted.begin(), report->emitted.end());
    return all;
  }
  static Tokens generated(const Sequence& q) { return {q.tokens.begin() + q.prompt_length, q.tokens.end()}; }
  std::vector<Tokens> alone(int count) {
    std::vector<Tokens> all;
    for (int i = 0; i < count; ++i) {
      const auto e = engine();
      e->submit(numbered(i));
      while (!e->idle()) {
        const StepReport report = e->step();
        for (const Sequence& q : report.finished) all.push_back(generated(q));
      }
    }
    return all;
  }
};

TEST_F(EngineLoops, give_each_request_of_many_threads_its_own_output) {
  const int count = 24;
  const std::vector<Tokens> expected = alone(count);
  std::vector<Tokens> streamed(count), whole(count);
  {
    EngineLoop loop(*served, {.waiting = 3});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = t; i < count; i += 4) {
          TokenStream stream = loop.submit(numbered(i));
          streamed[std::size_t(i)] = output_of(stream);
          EXPECT_EQ(stream.ended().finish, Finish::length);
          whole[std::size_t(i)] = generated(stream.ended());
        }
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(loop.broken(), "");
  }
  EXPECT_EQ(streamed, expected);
  EXPECT_EQ(whole, expected);
  EXPECT_TRUE(served->idle());
}

TEST_F(EngineLoops, serve_others_while_a_stream_is_not_read) {
  EngineLoop loop(*served);
  TokenStream unread = loop.submit(numbered(0)), read = loop.submit(numbered(1));
  EXPECT_EQ(output_of(read).size(), 12u);
  EXPECT_EQ(unread.ended().generated(), 12);
  EXPECT_EQ(output_of(unread).size(), 12u) << "what nobody read is still there";
}

TEST_F(EngineLoops, tell_who_listens_when_there_is_something_to_read) {
  std::atomic<int> heard = 0;
  EngineLoop loop(*served);
  TokenStream stream = loop.submit(numbered(0));
  stream.listen([&] { ++heard; });
  while (!stream.ready(10)) {
  }
  EXPECT_EQ(output_of(stream).size(), 12u);
  EXPECT_TRUE(stream.ready()) << "an end can be read again and again";
  EXPECT_GT(heard, 1);
  const int before = heard;
  stream.listen([&] { heard += 100; });
  EXPECT_EQ(heard, before + 100) << "what listens later hears of what is there";
  stream.listen({});
  TokenStream unheard = loop.submit(numbered(1));
  EXPECT_EQ(output_of(unheard).size(), 12u);
  EXPECT_EQ(heard, before + 100);
}

TEST_F(EngineLoops, end_what_is_cancelled_alone) {
  options.batch = 2;
  served = engine();
  const std::vector<Tokens> expected = alone(2);  // before there is a thread: all engines here share their models
  std::atomic<bool> go = false;
  EngineLoop loop(*served, {.before_step = [&] {
    while (!go) std::this_thread::yield();
  }});
  TokenStream cancelled = loop.submit(numbered(0, 40)), other = loop.submit(numbered(1));
  {
    const TokenStream dropped = loop.submit(numbered(2, 40));
  }
  cancelled.cancel();
  go = true;
  EXPECT_EQ(cancelled.ended().finish, Finish::cancelled);
  EXPECT_LT(cancelled.ended().generated(), 40);
  EXPECT_EQ(output_of(other), expected[1]);
  loop.drain();
  EXPECT_EQ(loop.running() + loop.waiting(), 0u);
}

TEST_F(EngineLoops, take_no_more_than_may_wait) {
  options.batch = 1;
  served = engine();
  std::atomic<bool> go = false;
  EngineLoop loop(*served, {.waiting = 2, .before_step = [&] {
                              while (!go) std::this_thread::yield();
                            }});
  TokenStream a = loop.submit(numbered(0)), b = loop.submit(numbered(1));
  EXPECT_EQ(loop.waiting(), 2u);
  EXPECT_FALSE(loop.try_submit(numbered(2)).has_value());
  std::atomic<bool> begun = false, submitted = false;
  std::thread waits([&] {
    begun = true;
    TokenStream c = loop.submit(numbered(2));
    submitted = true;
    EXPECT_EQ(output_of(c).size(), 12u);
  });
  while (!begun) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(loop.waiting(), 2u);
  EXPECT_FALSE(submitted);
  go = true;
  waits.join();
  EXPECT_EQ(output_of(a).size() + output_of(b).size(), 24u);
  EXPECT_TRUE(loop.try_submit(numbered(3)).has_value());
}

TEST_F(EngineLoops, drain_what_they_have) {
  EngineLoop loop(*served);
  std::vector<TokenStream> streams;
  for (int i = 0; i < 9; ++i) streams.push_back(loop.submit(numbered(i)));
  loop.drain();
  for (TokenStream& s : streams) EXPECT_EQ(s.ended().generated(), 12);
  EXPECT_TRUE(says(sentence([&] { loop.submit(numbered(0)); }), "no request is taken any more"));
}

TEST_F(EngineLoops, cancel_everything_where_they_end) {
  std::vector<TokenStream> streams;
  {
    EngineLoop loop(*served);
    for (int i = 0; i < 9; ++i) streams.push_back(loop.submit(numbered(i, 50)));
  }
  for (TokenStream& s : streams) EXPECT_NE(s.ended().finish, Finish::running);
  EXPECT_EQ(streams.back().ended().finish, Finish::cancelled);
}

TEST_F(EngineLoops, refuse_where_a_request_is_made) {
  EngineLoop loop(*served);
  EXPECT_TRUE(says(sentence([&] { loop.submit(request({})); }), "the prompt is empty"));
  EXPECT_TRUE(says(sentence([&] { loop.try_submit(request({9})); }), "outside the vocabulary"));
  TokenStream good = loop.submit(numbered(0));
  EXPECT_EQ(output_of(good).size(), 12u);
}

TEST_F(EngineLoops, share_the_prompt_of_samples) {
  int prompt_rows = 0;
  EngineLoop loop(*served, {.after_step = [&](const StepReport& report) {
    for (const SequenceReport& r : report.sequences) prompt_rows += r.prompt_rows;
  }});
  SequenceId first = 0;
  TokenStream one = loop.submit(numbered(0), nullptr, [&](SequenceId id) { first = id; });
  TokenStream two = loop.submit(numbered(0), &one);
  const auto output = output_of(one);
  EXPECT_EQ(output, output_of(two)) << "equal streams of draws";
  EXPECT_EQ(first, one.ended().id);
  loop.drain();
  const int together = prompt_rows;
  served = engine();
  EngineLoop apart(*served, {.after_step = [&](const StepReport& report) {
    for (const SequenceReport& r : report.sequences) prompt_rows += r.prompt_rows;
  }});
  prompt_rows = 0;
  TokenStream alone = apart.submit(numbered(0));
  EXPECT_EQ(output_of(alone), output);
  apart.drain();
  EXPECT_LT(together, 2 * prompt_rows) << "the second reads less of the prompt";
}

TEST_F(EngineLoops, refuse_to_let_nobody_wait) {
  EXPECT_TRUE(says(sentence([&] { EngineLoop loop(*served, {.waiting = 0}); }), "let one wait or more"));
}

TEST_F(EngineLoops, serve_on_after_a_step_that_failed) {
  auto device = std::make_unique<FailingDevice>();
  FailingDevice& failing = *device;
  backend = std::move(device), served = engine();
  EngineLoop loop(*served);
  failing.failures = 1;
  TokenStream failed = loop.submit(numbered(0));
  EXPECT_EQ(failed.ended().finish, Finish::failed);
  EXPECT_EQ(failed.ended().failure, "the device is lost");
  TokenStream later = loop.submit(numbered(1));
  EXPECT_EQ(output_of(later).size(), 12u);
  EXPECT_EQ(loop.broken(), "");
}

// What was submitted while a step failed is no part of the step after it, which lets go of what the failed one had.
TEST_F(EngineLoops, serve_what_was_submitted_while_a_step_failed) {
  auto device = std::make_unique<FailingDevice>();
  FailingDevice& failing = *device;
  backend = std::move(device), served = engine();
  std::atomic<bool> begun = false, queued = false;
  EngineLoop loop(*served, {.before_step = [&] {
    begun = true;
    while (!queued) std::this_thread::yield();
  }});
  failing.failures = 1;
  TokenStream failed = loop.submit(numbered(0));
  while (!begun) std::this_thread::yield();
  TokenStream later = loop.submit(numbered(1));
  queued = true;
  EXPECT_EQ(failed.ended().finish, Finish::failed);
  EXPECT_EQ(output_of(later).size(), 12u);
  TokenStream last = loop.submit(numbered(2));
  EXPECT_EQ(output_of(last).size(), 12u);
  EXPECT_EQ(loop.broken(), "");
}

TEST_F(EngineLoops, break_where_steps_go_on_failing_or_a_hook_throws) {
  auto device = std::make_unique<FailingDevice>();
  device->failures = 1000;
  backend = std::move(device), served = engine();
  EngineLoop loop(*served);
  TokenStream failed = loop.submit(numbered(0));
  EXPECT_EQ(failed.ended().finish, Finish::failed);
  loop.drain();
  EXPECT_TRUE(says(loop.broken(), "the device is lost"));
  EXPECT_TRUE(says(sentence([&] { loop.submit(numbered(1)); }), "no request is served any more"));

  backend = make_reference_backend();
  const auto other = engine();
  EngineLoop hooked(*other, {.after_step = [](const StepReport&) { throw Error("interrupted"); }});
  TokenStream one = hooked.submit(numbered(0));
  EXPECT_TRUE(says(one.ended().failure, "interrupted"));
  hooked.drain();
  EXPECT_EQ(hooked.broken(), "interrupted");

  EngineLoop next(*other);
  TokenStream two = next.submit(numbered(1));
  EXPECT_EQ(output_of(two).size(), 12u) << "another loop serves on with the engine that the broken one had";
  next.drain();
  EXPECT_TRUE(other->idle());
}

}  // namespace
}  // namespace foretoken::test
