// Conversations: which turns are served, when, and behind what.
#include <set>

#include "experiments/report/report.h"
#include "experiments/report/summary.h"
#include "experiments/sweep/arrivals.h"
#include "experiments/sweep/jobs.h"
#include "tests/experiments/report/made_results.h"
#include "tests/experiments/sweep/demo_runs.h"
#include "tests/framework/text/temporary_folder.h"
#include "tests/support/sentence.h"

namespace foretoken::test {
namespace {

using Tokens = std::vector<Token>;

Job job(int after, Tokens own) {
  Job one;
  one.after = after, one.request.prompt = std::move(own);
  return one;
}

Sequence ended_with(Tokens tokens, Finish finish) {
  Sequence s;
  s.tokens = std::move(tokens), s.finish = finish;
  return s;
}

// Jobs 0 to 2 are turns of one conversation, 3 and 4 of another.
TEST(Conversations, a_turn_waits_for_the_one_before_and_then_comes_first) {
  const std::vector<Job> jobs{job(-1, {1}), job(0, {2}), job(1, {3}), job(-1, {4}), job(3, {5}), job(-1, {6})};
  Conversations all(jobs);
  EXPECT_EQ(all.next(), 0u);
  EXPECT_EQ(all.next(), 3u);
  EXPECT_EQ(all.prompt(3), Tokens{4});
  EXPECT_TRUE(all.ended(0, ended_with({1, 7, 8, 9}, Finish::stop_token)).empty());
  EXPECT_EQ(all.next(), 1u) << "before the job 5, which has waited longer";
  EXPECT_EQ(all.prompt(1), (Tokens{1, 7, 8, 2})) << "without the stop token";
  EXPECT_EQ(all.next(), 5u);
  EXPECT_FALSE(all.ready());
  EXPECT_TRUE(all.ended(1, ended_with({1, 7, 8, 2, 9}, Finish::length)).empty());
  EXPECT_EQ(all.next(), 2u);
  EXPECT_EQ(all.prompt(2), (Tokens{1, 7, 8, 2, 9, 3})) << "the last token was no stop token";
  EXPECT_TRUE(all.ended(3, ended_with({4, 9}, Finish::stop_rule)).empty());
  EXPECT_EQ(all.next(), 4u);
  EXPECT_EQ(all.prompt(4), (Tokens{4, 9, 5}));
  EXPECT_FALSE(all.ready());
}

TEST(Conversations, turns_after_a_failed_one_are_left_out) {
  const std::vector<Job> jobs{job(-1, {1}), job(0, {2}), job(1, {3})};
  Conversations all(jobs);
  (void)all.next();
  EXPECT_EQ(all.ended(0, ended_with({1}, Finish::failed)), (std::vector<std::size_t>{1, 2}));
  EXPECT_FALSE(all.ready());
}

TEST(Conversations, a_turn_that_does_not_start_takes_those_after_it_along) {
  const std::vector<Job> jobs{job(-1, {1}), job(0, {2}), job(1, {3}), job(2, {4}), job(-1, {5})};
  Conversations all(jobs);
  (void)all.next();
  (void)all.ended(0, ended_with({1, 7}, Finish::length));
  ASSERT_EQ(all.next(), 1u);
  EXPECT_EQ(all.from(1), (std::vector<std::size_t>{1, 2, 3}));
  EXPECT_EQ(all.next(), 4u);
  EXPECT_FALSE(all.ready());
}

class Turns : public Runs {
 protected:
  Turns() {
    std::string lines;
    for (const char* name : {"Ann", "Ben", "Cid", "Dan", "Eve", "Fay"})
      lines +=
          json{{"turns", {std::string("USER: I am ") + name + ".\nSYSTEM:", "\nUSER: Who am I?\nSYSTEM:", "\nBye."}}}
              .dump() +
          "\n";
    file_ = folder_.write("turns.jsonl", lines).string();
  }
  json workload(const json& more) {
    json w{{"prompts", file_}, {"limit", 0}, {"max_new_tokens", 8}};
    w.update(more);
    return {{"engine", {{"batch", 1}}}, {"workload", w}};
  }

  TemporaryFolder folder_;
  std::string file_;
};

TEST_F(Turns, as_many_are_served_as_the_run_asks_for) {
  const auto jobs = [&](const json& more) { return jobs_of(run_of(workload(more)).document, bench, ""); };
  EXPECT_EQ(jobs(json::object()).size(), 6u);
  EXPECT_EQ(jobs({{"turns", 2}}).size(), 12u);
  const auto all = jobs({{"turns", 0}});
  ASSERT_EQ(all.size(), 18u);
  std::set<std::uint64_t> streams;
  for (std::size_t i = 0; i < 18; ++i) {
    EXPECT_EQ(all[i].turn, int(i % 3));
    EXPECT_EQ(all[i].after, i % 3 == 0 ? -1 : int(i) - 1);
    EXPECT_EQ(all[i].prompt, int(i / 3));
    streams.insert(all[i].request.stream);
  }
  EXPECT_EQ(streams.size(), 18u) << "every turn has draws of its own";
}

// The second turn of a measured conversation is what a request gives whose prompt was put together here.
TEST_F(Turns, a_later_turn_goes_on_from_what_was_said) {
  const json document = run_of(workload({{"turns", 2}})).document;
  const auto jobs = jobs_of(document, bench, "");
  const auto serve = [&](const std::vector<Job>& some) {
    return measure(*bench.engine(document, Side::speculative, ""), some, 1, [](double) {});
  };
  const Measured whole = serve(jobs);
  for (std::size_t i = 0; i < jobs.size(); i += 2) {
    Job alone = jobs[i + 1];
    alone.after = -1;
    Tokens said = jobs[i].request.prompt;
    said.insert(said.end(), whole.outputs[i].begin(), whole.outputs[i].end());
    if (to_json(whole.record)["requests"][i]["finish"] == "stop_token") said.pop_back();
    alone.request.prompt.insert(alone.request.prompt.begin(), said.begin(), said.end());
    EXPECT_EQ(whole.outputs[i + 1], serve({alone}).outputs[0]);
    const json request = to_json(whole.record)["requests"][i + 1];
    EXPECT_EQ(request["turn"], 1);
    EXPECT_EQ(request["prompt_tokens"], alone.request.prompt.size());
    EXPECT_GT(request["ttft"].get<double>(), 0);
    EXPECT_LT(request["ttft"].get<double>(), to_json(whole.record)["seconds"].get<double>() / 2)
        << "it is submitted when the turn before has ended";
  }
}

TEST_F(Turns, a_warm_up_fills_the_places_with_first_turns) {
  const auto jobs = jobs_of(run_of(workload({{"turns", 0}})).document, bench, "");
  const auto few = warm_up_jobs(jobs, 2);
  ASSERT_EQ(few.size(), 4u);
  for (std::size_t i = 0; i < few.size(); ++i) {
    EXPECT_EQ(few[i].after, -1);
    EXPECT_EQ(few[i].prompt, int(i));
  }
}

// All six conversations run at once, so the places are full once their first turns have emitted.
TEST_F(Turns, the_steady_window_begins_with_the_requests_that_fill_the_places) {
  json changes = workload({{"turns", 3}, {"repeats", 6}, {"ignore_eos", true}, {"lengths", "equal"}});
  changes["engine"]["batch"] = 6;
  const json document = run_of(changes).document;
  const Measured all =
      measure(*bench.engine(document, Side::baseline, ""), jobs_of(document, bench, ""), 6, [](double) {});
  long steady = 0;
  for (const json& request : json(to_json(all.record)["requests"]))
    if (request["turn"] == 0 && request["prompt"] == 0) steady += request["steady_tokens"].get<long>();
  EXPECT_GT(steady, 6 * 8 / 2) << "first turns count, but for their first step";
}

// The second question of one conversation fills the context alone, and the last one of another.
class LongTurns : public Turns {
 protected:
  LongTurns() {
    std::string whole;
    for (int i = 0; i < 3000; ++i) whole += " bridge";
    std::string lines;
    for (int i = 0; i < 6; ++i)
      lines += json{{"turns",
                     {"USER: Hello.\nSYSTEM:", i == 1 ? whole : "\nUSER: Who?\nSYSTEM:",
                      i == 4 ? whole : "\nUSER: Why?\nSYSTEM:"}}}
                   .dump() +
               "\n";
    file_ = folder_.write("long.jsonl", lines).string();
  }
};

TEST_F(LongTurns, end_their_conversations_early) {
  json changes = workload({{"turns", 0}, {"max_new_tokens", 4}});
  changes["measure"] = {{"repeats", 2}, {"keep_outputs", true}};
  const json line = measured(changes);
  const int context = bench.target_info(line["run"], "").positions;
  const json left_out{{"context", context},
                      {"turns",
                       {{{"job", 4}, {"prompt", 1}, {"turn", 1}},
                        {{"job", 5}, {"prompt", 1}, {"turn", 2}},
                        {{"job", 14}, {"prompt", 4}, {"turn", 2}}}}};
  for (const json& repeat : line["repeats"])
    for (const char* side : {"baseline", "speculative"}) {
      EXPECT_EQ(repeat[side]["left_out"], left_out);
      ASSERT_EQ(repeat[side]["requests"].size(), 15u);
      EXPECT_EQ(repeat[side]["requests"][4]["prompt"], 2) << "behind the first turn of prompt 1";
    }
  EXPECT_TRUE(line["failures"].empty());
  EXPECT_EQ(line["agreement"]["compared_texts"], 30);
  EXPECT_EQ(line["alternations"], json({{"compared", true}, {"differing", json::array()}}));
  const json &first = line["repeats"][0], &plain = first["baseline"]["requests"];
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(plain[i]["output"], first["speculative"]["requests"][i]["output"]);
    EXPECT_NE(plain[i]["output"], "") << "each has its own, also behind turns that were left out";
  }
  const Summary s = summarize(line);
  EXPECT_EQ(s.error, "");
  EXPECT_EQ(s.prompts, 6);
  EXPECT_EQ(s.left_out_turns.speculative, 3);
  ShowOptions options;
  options.width = 0;
  EXPECT_TRUE(says(show({line}, options),
                   "3 turns left out: the conversation reached the context of " + std::to_string(context) + " tokens"));
}

// Nothing runs any more when the last turns are left out.
TEST_F(LongTurns, may_be_the_last_of_a_run) {
  const json document = run_of(workload({{"turns", 0}, {"max_new_tokens", 4}})).document;
  const auto all = jobs_of(document, bench, "");
  const std::vector<Job> second(all.begin() + 3, all.begin() + 6);
  std::vector<Job> jobs = second;
  for (std::size_t i = 0; i < 3; ++i) jobs[i].after = int(i) - 1;
  const Measured found = measure(*bench.engine(document, Side::speculative, ""), jobs, 1, [](double) {});
  EXPECT_EQ(to_json(found.record)["requests"].size(), 1u);
  EXPECT_EQ(to_json(found.record)["left_out"]["turns"].size(), 2u);
}

TEST_F(LongTurns, cannot_be_first_ones) {
  std::string whole;
  for (int i = 0; i < 3000; ++i) whole += " bridge";
  file_ = folder_.write("first.jsonl", json{{"prompt", whole}}.dump() + "\n").string();
  EXPECT_TRUE(says(failure(workload({{"repeats", 6}})), "prompt 1 of the workload", "the context of", "shorten it"));
}

TEST_F(Turns, a_trace_takes_single_turns) {
  json run = demo(workload({{"turns", 2}}));
  run["trace"] = (folder_.path() / "trace.jsonl").string();
  EXPECT_TRUE(says(sentence_of([&] { complete_run(run, bench.registries(), "test"); }), "not of conversations",
                   "'/workload/turns' to 1"));
}

}  // namespace
}  // namespace foretoken::test
