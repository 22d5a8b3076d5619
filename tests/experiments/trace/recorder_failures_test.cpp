// A recorder beside components that are slow or fail: the times of a step are the run's, and so are its other requests.
#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "experiments/trace/recorder.h"
#include "tests/experiments/trace/traced_run.h"

namespace foretoken::test {
namespace {

// A judge that takes its time.
class Slow final : public Verifier {
 public:
  static constexpr double kSeconds = 0.002;
  void verify(Backend&, const Trials& trials, Tensor verdicts) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds));
    for (int i = 0; i < trials.count(); ++i) new (verdicts.row<std::uint8_t>(i)) Verdict();
  }
};

Entry<Verifier> slow() {
  return {"",
          "",
          {},
          [](const json&, Host&) { return std::make_unique<Slow>(); },
          [](const json&, const ModelInfo&) {
            return Soundness{.takes = {Drawn::certain, Drawn::chain}, .acceptance = Acceptance::other};
          }};
}

// It fails the first sequence that it sees, after some rounds.
class Failing final : public Verifier {
 public:
  Failing(std::unique_ptr<Verifier> own, int rounds) : own_(std::move(own)), rounds_(rounds) {}
  void verify(Backend& backend, const Trials& trials, Tensor verdicts) override {
    if (!stream_) stream_ = trials.named()[0].stream;
    for (const Draws& d : trials.named())
      if (d.stream == stream_ && --rounds_ < 0) throw Error("it cannot be judged");
    own_->verify(backend, trials, verdicts);
  }

 private:
  std::unique_ptr<Verifier> own_;
  std::optional<std::uint64_t> stream_;
  int rounds_;
};

// Accepts so many nodes of every tree, though none has as many.
class Lying final : public Verifier {
 public:
  explicit Lying(int length) : length_(length) {}
  void verify(Backend&, const Trials& trials, Tensor verdicts) override {
    for (int i = 0; i < trials.count(); ++i) (new (verdicts.row<std::uint8_t>(i)) Verdict())->length = length_;
  }

 private:
  int length_;
};

class RecordedByHand : public testing::Test, public TracedRuns {
 protected:
  // Records the run with other registries than the bench's; `watch` gets every step, as reported and as recorded.
  template <class Watch> std::filesystem::path record(const json& changes, Recording recording,
                                                      const Registries& registries, const Watch& watch) {
    const json run = complete_run(demo_run(changes), registries, "test");
    const auto jobs = jobs_of(run, bench, "");
    std::map<std::uint64_t, Recorder::Request> by_stream;
    std::vector<TracedRequest> requests;
    for (const Job& job : jobs) {
      by_stream[job.request.stream] = {int(requests.size()), int(job.request.prompt.size())};
      requests.push_back({job.prompt, job.category, int(job.request.prompt.size()), job.request.limits.max_new_tokens});
    }
    Recorder recorder(std::move(recording), std::move(by_stream));
    const Registries with = recorder.recording(registries, run["verifier"]);
    const auto engine = bench.engine(run, Side::speculative, "", with);
    const auto file = folder.path() / "by_hand.jsonl";
    TraceWriter writer(
        file,
        {{"run", run}, {"key", key_of(run)}, {"dense", false}, {"race", false}, {"learns", false}, {"positions", 512}},
        requests);
    measure(
        *engine, jobs, run["engine"]["batch"].get<int>(), [](double) {},
        [&](const StepReport& r) {
          const TracedStep s = recorder.step(r, false);
          watch(r, s);
          writer.append(s);
        });
    failed = recorder.failed();
    writer.close(failed);
    return file;
  }
  std::set<int> failed;
};

TEST_F(RecordedByHand, TheTimeOfRecordingIsNotThatOfTheStep) {
  Registries registries = bench.registries();
  registries.verifiers.add("slow", slow());
  int judged = 0;
  record({{"policy", {{"length", 2}}}, {"workload", {{"limit", 2}, {"max_new_tokens", 8}}}}, {true, {"slow"}},
         registries, [&](const StepReport& whole, const TracedStep& s) {
           int levels = 0;
           for (const SequenceReport& r : whole.sequences) levels += r.judged ? r.depth : 0, judged += r.judged;
           EXPECT_GE(whole.phases.verify - s.phases.verify, levels * Slow::kSeconds) << "a call for each level";
           EXPECT_NEAR(whole.phases.total - s.phases.total, whole.phases.verify - s.phases.verify, 1e-9);
           EXPECT_GT(s.phases.total, 0);
         });
  EXPECT_GT(judged, 10);
}

TEST_F(RecordedByHand, RowsOfPromptsAreThoseOfAllSequences) {
  int several = 0;
  record({{"engine", {{"batch", 3}}}, {"workload", {{"limit", 3}, {"max_new_tokens", 4}}}}, {}, bench.registries(),
         [&](const StepReport& whole, const TracedStep& s) {
           int rows = 0, prompts = 0;
           for (const SequenceReport& r : whole.sequences) rows += r.prompt_rows, prompts += r.prompt_rows > 0;
           EXPECT_EQ(s.prompt_rows, rows);
           several += prompts > 1;
         });
  EXPECT_GT(several, 0);
}

// As without a trace: the others go on, and the trace has what they did.
TEST_F(RecordedByHand, AFailedRequestIsLeftOut) {
  Registries registries = bench.registries();
  Entry<Verifier> entry = registries.verifiers.find({{"name", "speculative_sampling"}});
  entry.make = [make = entry.make](const json& options, Host& host) {
    return std::make_unique<Failing>(make(options, host), 1);
  };
  registries.verifiers.replace("speculative_sampling", entry);
  const json changes = {{"verifier", {{"name", "speculative_sampling"}}},
                        {"engine", {{"batch", 3}}},
                        {"workload", {{"limit", 3}, {"max_new_tokens", 16}}}};
  const Trace trace = read_trace(record(changes, {}, registries, [](const StepReport&, const TracedStep& s) {
    EXPECT_EQ(int(s.rounds.size()), s.judged);
  }));
  const Measured real = measured(changes, registries);
  ASSERT_EQ(failed.size(), 1u);
  std::vector<std::vector<Token>> outputs, texts;
  for (const auto& rounds : trace.by_request()) {
    outputs.emplace_back();
    for (const TracedRound* r : rounds)
      outputs.back().insert(outputs.back().end(), r->emitted.begin(), r->emitted.end());
  }
  for (std::size_t i = 0; i < real.outputs.size(); ++i) {
    EXPECT_EQ(real.failures[i].empty(), !failed.contains(int(i)));
    if (real.failures[i].empty()) texts.push_back(real.outputs[i]);
  }
  EXPECT_EQ(outputs, texts);
}

// Its path is not read, and its request is left out as any that fails.
TEST_F(RecordedByHand, AVerdictThatTheEngineRefusesIsNotRead) {
  for (const int length : {-1, kMaxPath, kMaxPath + 1}) {
    Registries registries = bench.registries();
    Entry<Verifier> entry = registries.verifiers.find({{"name", "speculative_sampling"}});
    entry.make = [length](const json&, Host&) { return std::make_unique<Lying>(length); };
    registries.verifiers.replace("speculative_sampling", entry);
    std::size_t rounds = 0;
    record({{"verifier", {{"name", "speculative_sampling"}}}, {"workload", {{"limit", 2}, {"max_new_tokens", 4}}}}, {},
           registries, [&](const StepReport&, const TracedStep& s) { rounds += s.rounds.size(); });
    EXPECT_GE(failed.size(), 2u) << length;
    EXPECT_EQ(rounds, 0u) << length;
  }
}

// Steps in which no tree was verified are no steps of a round.
TEST_F(RecordedByHand, StepsInWhichAllFailAreNotThoseThatTimesAreFittedTo) {
  Registries registries = bench.registries();
  Entry<Verifier> entry = registries.verifiers.find({{"name", "speculative_sampling"}});
  entry.make = [make = entry.make](const json& options, Host& host) {
    return std::make_unique<Failing>(make(options, host), 1);
  };
  registries.verifiers.replace("speculative_sampling", entry);
  const Measured real =
      measured({{"verifier", {{"name", "speculative_sampling"}}}, {"workload", {{"limit", 2}, {"max_new_tokens", 16}}}},
               registries);
  for (const json& s : json(to_json(real.record)["steps_of_rows"])) EXPECT_EQ(s["steps"], s["sequences"]) << s;
  EXPECT_EQ(std::ranges::count(real.failures, std::string()), long(real.failures.size()) - 1);
}

}  // namespace
}  // namespace foretoken::test
