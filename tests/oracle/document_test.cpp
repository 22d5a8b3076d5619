// Every key of a run document where it takes effect: in the sampling options and limits of a request, and in an engine.
#include "tests/oracle/document_scene.h"

namespace foretoken::oracle {
namespace {

// Keys that the tests of this folder do not follow, and who does.
const std::map<std::string, std::string> kElsewhere = {
    {"/target/inflate", "workbench_test"},
    {"/target/dtype", "workbench_test"},
    {"/plugins", "plugins/"},
    {"/engine/threads", "shows in speed alone"},
    {"/engine/numerics", "of CUDA alone"},
    {"/sampling/response_format", "response_format_test"},
    {"/parallel/tensor", "divided_runs_test"},
    {"/parallel/expert", "framework/ranks/"},
    {"/measure/repeats", "runner_test"},
    {"/measure/seconds", "runner_test"},
    {"/measure/warmup", "runner_test"},
    {"/measure/busy", "warm_up_test"},
    {"/measure/keep_outputs", "windows_test"},
    {"/workload/prompt_tokens", "workload_test"},
    {"/workload/start", "learning_test"},
    {"/workload/skip", "workload_test"},
    {"/workload/rate", "arrivals_test"},
    {"/workload/rates", "arrivals_test"},
    {"/workload/ttft_limit", "load_test"},
    {"/workload/tpot_limit", "load_test"},
    {"/trace", "experiments/trace/"},
};

// Those that are followed here and in chairs_test.cpp.
const std::set<std::string> kFollowed = {"/target/model",
                                         "/target/kv_dtype",
                                         "/drafter",
                                         "/policy",
                                         "/verifier",
                                         "/sampling/temperature",
                                         "/sampling/top_k",
                                         "/sampling/top_p",
                                         "/sampling/min_p",
                                         "/sampling/repetition_penalty",
                                         "/sampling/frequency_penalty",
                                         "/sampling/presence_penalty",
                                         "/sampling/logit_bias",
                                         "/sampling/samples",
                                         "/sampling/seed",
                                         "/sampling/logprobs",
                                         "/sampling/warped_logprobs",
                                         "/engine/batch",
                                         "/engine/device",
                                         "/engine/step_rows",
                                         "/engine/page_rows",
                                         "/engine/memory_mib",
                                         "/engine/memory_fraction",
                                         "/engine/reuse_prefixes",
                                         "/engine/check",
                                         "/workload/prompts",
                                         "/workload/chat",
                                         "/workload/system",
                                         "/workload/date",
                                         "/workload/turns",
                                         "/workload/limit",
                                         "/workload/repeats",
                                         "/workload/lengths",
                                         "/workload/categories",
                                         "/workload/max_new_tokens",
                                         "/workload/stop",
                                         "/workload/ignore_eos"};

// A new key needs a line in one of the lists.
TEST(Keys, all_are_followed_or_left_to_another_test) {
  std::set<std::string> known;
  for (const auto& [pointer, whose] : kElsewhere) known.insert(pointer);
  known.insert(kFollowed.begin(), kFollowed.end());
  std::set<std::string> all;
  for (const RunKey& key : run_keys()) all.insert(key.pointer);
  EXPECT_EQ(all, known);
}

TEST_F(Document, sampling_keys_arrive) {
  const Sampling none = request(run()).sampling;
  EXPECT_EQ(std::tuple(none.temperature, none.top_k, none.top_p, none.min_p), std::tuple(0.f, 0, 1.f, 0.f));
  EXPECT_EQ(none.repetition_penalty, 1);
  EXPECT_EQ(none.frequency_penalty, 0);
  EXPECT_EQ(none.presence_penalty, 0);
  EXPECT_TRUE(none.logit_bias.empty());
  EXPECT_EQ(none.seed, 1u);
  EXPECT_FALSE(none.logprobs || none.warped_logprobs);
  const auto with = [&](const std::string& key, const json& value) {
    return request(run("sampling", {{key, value}})).sampling;
  };
  EXPECT_EQ(with("temperature", .5).temperature, .5f);
  EXPECT_EQ(with("top_k", 7).top_k, 7);
  EXPECT_EQ(with("top_p", .875).top_p, .875f);
  EXPECT_EQ(with("min_p", .125).min_p, .125f);
  EXPECT_EQ(with("repetition_penalty", 1.25).repetition_penalty, 1.25f);
  EXPECT_EQ(with("frequency_penalty", .75).frequency_penalty, .75f);
  EXPECT_EQ(with("presence_penalty", -.25).presence_penalty, -.25f);
  EXPECT_EQ(with("logit_bias", {{"3", 1.5}, {"200", -100}}).logit_bias,
            (std::vector<TokenBias>{{200, -100}, {3, 1.5f}}));
  EXPECT_EQ(with("seed", 99).seed, 99u);
  EXPECT_TRUE(with("logprobs", true).logprobs);
  const Sampling both = request(run("sampling", {{"logprobs", true}, {"warped_logprobs", true}})).sampling;
  EXPECT_TRUE(both.logprobs && both.warped_logprobs);
}

// "a b" is three bytes; text 3 of sample 2 has a stream of its own.
TEST_F(Document, limits_and_texts_arrive) {
  const Request none = request(run());
  EXPECT_EQ(none.prompt, (Tokens{'a', ' ', 'b'}));
  EXPECT_EQ(none.limits.max_new_tokens, 64);
  EXPECT_EQ(none.limits.stop_tokens, (Tokens{7, 3})) << "the model's ends of sequence";
  EXPECT_FALSE(none.limits.stop);
  EXPECT_NE(request(run(), 1).stream, none.stream);
  const auto with = [&](const std::string& key, const json& value) { return request(run("workload", {{key, value}})); };
  EXPECT_EQ(with("max_new_tokens", 9).limits.max_new_tokens, 9);
  EXPECT_TRUE(with("ignore_eos", true).limits.stop_tokens.empty());
  const StopRule stop = with("stop", {"xy", "z"}).limits.stop;
  EXPECT_EQ(stop(Tokens{'x', 'x', 'y', 'a'}, 0), std::optional(3));
  EXPECT_EQ(stop(Tokens{'x', 'z', 'y'}, 0), std::optional(2));
  const auto text = [&](const json& changes) {
    const auto chat = chat_of(run("workload", changes), "");
    return chat ? chat->text("q") : "q";
  };
  EXPECT_EQ(text({}), "q");
  EXPECT_EQ(text({{"chat", "zephyr"}}), "<|user|>\nq</s>\n<|assistant|>\n");
  folder.write("chat_template.jinja", "{{ messages[0].content }}|{{ strftime_now('%d %b %Y') }}|<think>\n\n");
  EXPECT_EQ(text({{"chat", "auto"}}), "q|26 Jul 2024|<think>\n");
  EXPECT_EQ(text({{"chat", "auto"}, {"date", "2025-02-03"}}), "q|03 Feb 2025|<think>\n");
  EXPECT_THROW(run("workload", {{"date", "2025-02-29"}}), Error) << "no day of the calendar";
}

TEST_F(Document, a_system_prompt_arrives) {
  json file = bytes_file();  // with the marks of the form
  file["added_tokens"] = {{{"id", 256}, {"content", "<|im_start|>"}, {"special", true}},
                          {{"id", 257}, {"content", "<|im_end|>"}, {"special", true}}};
  const json with = run("workload", {{"chat", "chatml"}, {"system", "be brief"}});
  const auto tokenizer = Tokenizer::from(file, "marks");
  const Request r =
      request_of(with, info(), tokenizer, chat_of(with, ""), {.number = 0, .text = "q", .category = ""}, 0);
  EXPECT_EQ(tokenizer->decode(r.prompt, true),
            "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(Document, prompts_categories_limit_and_samples_arrive) {
  const auto asked = [&](const json& changes, int samples = 1) {
    json document = run("workload", changes);
    document["sampling"]["samples"] = samples, document["engine"]["batch"] = 1;  // six requests or more
    std::vector<std::string> texts;
    for (const Job& job : jobs_of(document, bench, "")) texts.push_back(bytes()->decode(job.request.prompt));
    return texts;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(asked({{"repeats", 2}}),
            (Texts{"first", "second", "third", "fourth", "fifth", "first", "second", "third", "fourth", "fifth"}));
  EXPECT_EQ(asked({{"limit", 4}, {"repeats", 2}}),
            (Texts{"first", "second", "third", "fifth", "first", "second", "third", "fifth"}))
      << "spread over the categories";
  EXPECT_EQ(asked({{"limit", 1}, {"repeats", 2}}), asked({{"limit", 3}, {"repeats", 2}})) << "six requests need three";
  EXPECT_EQ(asked({{"categories", {"b", "c"}}, {"limit", 0}, {"repeats", 2}}),
            (Texts{"second", "fourth", "fifth", "second", "fourth", "fifth"}));
  EXPECT_EQ(asked({{"categories", {"c"}}, {"repeats", 6}}, 4), Texts(24, "fifth"));
  EXPECT_THROW(asked({}), Error) << "five prompts are no six requests";
  json two = run("workload", {{"categories", {"c"}}, {"repeats", 6}});
  two["sampling"]["samples"] = 2, two["engine"]["batch"] = 1;
  std::set<std::uint64_t> streams;
  std::vector<int> firsts;
  for (const Job& job : jobs_of(two, bench, "")) streams.insert(job.request.stream), firsts.push_back(job.first);
  EXPECT_EQ(streams.size(), 12u);
  EXPECT_EQ(firsts, (std::vector<int>{-1, 0, -1, 2, -1, 4, -1, 6, -1, 8, -1, 10}));
  json all = run("workload", {{"repeats", 2}});
  all["engine"]["batch"] = 1;
  std::string categories;  // that drafters and policies are told
  for (const Job& job : jobs_of(all, bench, "")) categories += job.request.category;
  EXPECT_EQ(categories, "ababcababc");
}

TEST_F(Document, lengths_arrive) {
  const auto lengths = [&](const json& changes) {
    json document = run("workload", changes);
    document["engine"]["batch"] = 1;
    std::vector<int> found;
    for (const Job& job : jobs_of(document, bench, "")) found.push_back(job.request.limits.max_new_tokens);
    return found;
  };
  const json equal = {{"repeats", 2}, {"lengths", "equal"}, {"max_new_tokens", 50}};
  EXPECT_EQ(lengths(equal), std::vector<int>(10, 50));
  json drawn = equal;
  drawn["lengths"] = "drawn";
  const std::vector<int> some = lengths(drawn);
  EXPECT_GT(std::set<int>(some.begin(), some.end()).size(), 3u);
  for (const int n : some) EXPECT_TRUE(n >= 25 && n <= 50) << n;
}

TEST_F(Document, engine_keys_arrive) {
  const std::int64_t row = 2 * 2 * 16 * 4;  // bytes of a position: keys and values of two layers in f32
  const auto pages = [&](const json& changes) {
    const auto e = engine(run("engine", changes));
    return std::pair(e->pool().page_bytes(), e->pool().pages());
  };
  EXPECT_EQ(pages({{"page_rows", 5}}), std::pair(5 * row, int((1 << 20) / (5 * row))));
  EXPECT_EQ(pages({{"page_rows", 20}, {"memory_mib", 3}}), std::pair(16 * row, int((3 << 20) / (16 * row))));
  const double free = double(bench.backend(run()["engine"]).free_memory());
  const auto [page, count] = pages({{"memory_fraction", .003}});
  EXPECT_NEAR(double(page * count) / free, .003, .001);
  EXPECT_EQ(bench.backend(run("engine", {{"device", "reference"}})["engine"]).name(), "reference");
  EXPECT_EQ(bench.backend(run("engine", {{"device", "cpu"}})["engine"]).name(), "cpu");

  const auto most = [](const std::vector<StepReport>& reports, int StepReport::* of) {
    int greatest = 0;
    for (const StepReport& r : reports) greatest = std::max(greatest, r.*of);
    return greatest;
  };
  EXPECT_EQ(most(steps(run("engine", {{"batch", 3}}), 7), &StepReport::running), 3);
  EXPECT_EQ(most(steps(run("engine", {{"batch", 2}, {"step_rows", 11}})), &StepReport::rows), 11);
  for (const bool reuse : {true, false}) {
    int rows = 0;
    for (const StepReport& r : steps(run("engine", {{"reuse_prefixes", reuse}}))) rows += r.rows;
    EXPECT_EQ(rows, reuse ? 2 * 42 - 32 : 2 * 42) << "two pages of 16 tokens are shared";
  }
}

// Its chain has one node; from the ninth tree on, q adds up to 2.
class Liar : public Drafter {
 public:
  explicit Liar(Backend& backend) : backend_(backend) {}
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      if (!requests[i].budget.drafts()) continue;
      const Tensor row = Tensor::host({1, 256}, DType::f32);
      std::ranges::fill(row.values<float>(), 0.0f);
      const Distributions q = backend_.distributions(row, std::vector{Warp{1}});
      TokenDraw draw = requests[i].draw(1, 1);
      draw.to = trees[i].tokens.row<Token>(1);
      backend_.draw(q, {&draw, 1}, {});
      if (++made_ > 8) reinterpret_cast<DistributionRow*>(q.rows.row<std::uint8_t>(0))->mass /= 2;
      trees[i].grow(0, Drawn::chain);
      trees[i].q.distributions.push_back(q);
    }
    return trees;
  }

 private:
  Backend& backend_;
  int made_ = 0;
};

TEST_F(Document, check_arrives) {
  registries.drafters.add("liar", {"",
                                   "",
                                   {},
                                   [](const json&, Host& host) { return std::make_unique<Liar>(host.backend()); },
                                   [](const json&, const ModelInfo&) { return Needs{.proposes = {Drawn::chain}}; }});
  for (const bool check : {true, false}) {
    json document = run("engine", {{"check", check}});
    document["drafter"] = {{"name", "liar"}};
    const auto e = engine(document);
    Request r;
    r.prompt = {1}, r.sampling.temperature = 1, r.limits.max_new_tokens = 60;
    const SequenceId id = e->submit(std::move(r));
    EXPECT_EQ(name_of(serve(*e).at(id).finish), std::string(check ? "failed" : "length"));
  }
}

}  // namespace
}  // namespace foretoken::oracle
