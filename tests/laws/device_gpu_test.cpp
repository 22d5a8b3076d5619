// The laws on the GPU, with the demo models, in invariant numerics: greedy, coupled, batch; and one wait a step. In
// fast numerics: where greedy outputs differ from the host's, two tokens are nearly equally probable.
#include <cmath>
#include <cstdio>

#include <gtest/gtest.h>

#include "experiments/conformance/laws.h"
#include "framework/model/transformer.h"
#include "tests/framework/cache/alone.h"
#include "tests/laws/subjects.h"
#include "tests/laws/tree_is_chain.h"
#include "tests/support/gpu.h"
#include "tests/support/sentence.h"

namespace foretoken::test {

using namespace conformance;

namespace {

std::unique_ptr<Backend> invariant() { return make_gpu({.invariant = true}); }

std::shared_ptr<Model> demo(Backend& backend, const std::string& name, const std::string& dtype) {
  const auto folder = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "experiments/models" / name;
  return std::make_shared<Transformer>(backend, ModelConfig::load(folder), Checkpoint::open(folder), name, 0,
                                       TransformerOptions{.dtype = dtype});
}

// "table:same" is the target, any other name a draft.
Models demo_models(Backend& backend, const std::string& dtype) {
  const auto target = demo(backend, "target", dtype), draft = demo(backend, "draft", dtype),
             large = demo(backend, "draft-large", dtype);
  return {target, [=](const ModelChoice& m) {
            return m.directory == "table:same" ? target : m.directory == "table:other" ? draft : large;
          }};
}

const Scenario kScenario{.engine = {.batch = 4, .step_rows = 64, .page_rows = 16, .pages = 256, .check = true}};

void expect_plain_texts(const Sampling& sampling, const std::string& dtype,
                        const std::function<bool(const Subject&)>& chosen) {
  const auto backend = invariant();
  const Models models = demo_models(*backend, dtype);
  const auto requests = random_requests(6, models.target->info().vocab, 90, 40, 5);
  Scenario scenario = kScenario;
  scenario.sampling = sampling;
  long accepted = 0, rejected = 0;
  for (const Subject& s : subjects(all_registries(), 4)) {
    if (!chosen(s)) continue;
    const Finding f = same_text({s, scenario, *backend, models, requests});
    EXPECT_TRUE(f.holds) << f.what;
    accepted += f.accepted, rejected += f.rejected;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(rejected, 0);
}

bool path_identical(const Subject& s) {
  return soundness_of(s.registries, s.configs.verifier).promise.find("path-identical") != std::string::npos;
}

TEST(DeviceLaws, greedy_text_is_plain_decodings) {
  for (const char* dtype : {"bf16", "f32"})
    expect_plain_texts({.temperature = 0}, dtype, [](const Subject&) { return true; });
}

TEST(DeviceLaws, coupled_text_is_plain_decodings_at_any_temperature) {
  for (const float t : {0.4f, 1.0f}) expect_plain_texts({.temperature = t}, "bf16", path_identical);
}

TEST(DeviceLaws, text_under_penalties_is_plain_decodings) {
  expect_plain_texts(talkative(0), "bf16", [](const Subject&) { return true; });
  expect_plain_texts(talkative(1), "bf16", path_identical);
}

constexpr int kParts = 8;

class DeviceLawsByPart : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Parts, DeviceLawsByPart, ::testing::Range(0, kParts));

TEST_P(DeviceLawsByPart, penalties_give_the_texts_of_the_reference) {
  const auto backend = invariant();
  ReferenceBackend reference;
  for (const int vocab : {5, 261})
    for (const Subject& s : part_of(subjects(all_registries(), 4), GetParam(), kParts)) {
      const Finding f = same_on_devices({s,
                                         {.sampling = talkative(0.9f)},
                                         reference,
                                         table_models({.vocab = vocab, .order = 1, .seed = 95}),
                                         random_requests(8, vocab, 10, 24, 12)},
                                        *backend);
      EXPECT_TRUE(f.holds) << f.what;
    }
}

// Where two sets of outputs differ, in a sentence; empty if they are equal.
std::string parting(const std::vector<Tokens>& texts, const std::vector<Tokens>& others) {
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (texts[i] != others[i])
      return "text " + std::to_string(i) + " parts at token " +
             std::to_string(std::ranges::mismatch(texts[i], others[i]).in1 - texts[i].begin());
  return "";
}

TEST_P(DeviceLawsByPart, a_text_does_not_depend_on_its_batch_nor_on_the_chunks_of_its_prompt) {
  const auto backend = invariant();
  const Models models = demo_models(*backend, "bf16");
  const auto requests = random_requests(24, models.target->info().vocab, 200, 32, 6);
  for (const Subject& s : part_of(subjects(all_registries(), 3), GetParam(), kParts)) {
    Scenario alone = kScenario, batched = kScenario, chunks = kScenario;
    alone.engine.batch = 1, alone.engine.step_rows = 512;
    batched.engine.batch = 24, batched.engine.step_rows = 1024, batched.engine.pages = 1024;
    chunks.engine.batch = 5, chunks.engine.step_rows = 23;
    // At temperature 0 for any trees; sampled outputs also depend on where trees end, so plain decoding's are compared.
    for (const float temperature : {0.0f, 1.0f}) {
      for (Scenario* scenario : {&alone, &batched, &chunks}) scenario->sampling.temperature = temperature;
      const Subject& subject = temperature > 0 ? plain(s) : s;
      const auto one = run_scenario({subject, alone, *backend, models, requests}).outputs;
      EXPECT_EQ(parting(one, run_scenario({subject, batched, *backend, models, requests}).outputs), "")
          << "beside other requests at " << temperature << ": " << subject.text();
      EXPECT_EQ(parting(one, run_scenario({subject, chunks, *backend, models, requests}).outputs), "")
          << "in chunks at " << temperature << ": " << subject.text();
    }
  }
}

// For any division into steps, caches hold the bits of the keys and values of one prefill.
TEST(DeviceLaws, caches_hold_what_a_prefill_at_once_holds) {
  const auto backend = invariant();
  const Models models = demo_models(*backend, "bf16");
  const auto requests = random_requests(7, models.target->info().vocab, 200, 10, 9);
  const int steps[] = {9, 12, 17, 23, 31, 40, 61, 100, 200};
  std::size_t turn = 0;
  for (const Subject& s : subjects(all_registries(), 3)) {
    const int rows = steps[turn++ % std::size(steps)];
    Scenario scenario = kScenario;
    scenario.engine.batch = std::min(5, rows), scenario.engine.step_rows = rows;
    const Finding f = cache({s, scenario, *backend, models, requests});
    EXPECT_TRUE(f.holds) << rows << " rows a step: " << f.what.substr(0, 500);
    EXPECT_GT(f.cases, 0);
  }
}

TEST(DeviceLaws, a_node_of_a_tree_has_the_logits_of_its_path) {
  const auto backend = invariant();
  for (const char* dtype : {"bf16", "f32"})
    for (const int nodes : {3, 7, 20, 70})
      for (const std::uint64_t seed : {1, 2, 3}) {
        const Finding f = tree_is_chain(*backend, demo(*backend, seed == 2 ? "draft" : "target", dtype), nodes, seed);
        EXPECT_TRUE(f.holds) << f.what.substr(0, 500);
      }
}

// A model whose forward changes each time although its rows do not, which a recorded forward must not do.
class Drifting : public Model {
 public:
  explicit Drifting(std::shared_ptr<Model> model) : model_(std::move(model)) {}
  const ModelInfo& info() const override { return model_->info(); }
  bool replays() const override { return true; }
  const Ends* ends(Backend& backend) override { return model_->ends(backend); }
  Output forward(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) override {
    const Output out = model_->forward(backend, rows, kv);
    if (rows.logits && forwards_++ % 2 == 0) backend.add(rows.logits, rows.logits);
    return out;
  }

 private:
  std::shared_ptr<Model> model_;
  int forwards_ = 0;
};

// The backend throws if they differ, and does throw for a model whose forwards differ.
TEST(DeviceLaws, a_replayed_forward_gives_what_it_gives_when_it_is_run) {
  for (const bool bits : {true, false}) {
    const auto backend = make_gpu({.invariant = bits, .compare_replays = true});
    const Models models = demo_models(*backend, "bf16");
    const auto requests = random_requests(3, models.target->info().vocab, 60, 24, 7);
    for (const Subject& s : subjects(all_registries(), 3))
      EXPECT_NO_THROW(run_scenario({s, kScenario, *backend, models, requests})) << s.text();
    Models drifting = models;
    drifting.target = std::make_shared<Drifting>(models.target);
    EXPECT_TRUE(says(sentence_of([&] {
                       run_scenario({subjects(all_registries(), 3).front(), kScenario, *backend, drifting, requests});
                     }),
                     "other numbers"));
  }
}

// With pages in a separate slab of memory, as in a sweep. A drafter that learns may choose by times, so that the second
// engine has other forwards; the CPU's laws leave it out for the same reason.
TEST(DeviceLaws, an_engine_replays_what_another_recorded) {
  const auto backend = invariant();
  const Models models = demo_models(*backend, "bf16");
  const auto requests = random_requests(3, models.target->info().vocab, 60, 24, 7);
  Scenario scenario = kScenario;
  scenario.engine.pages =
      int((std::int64_t(64) << 20) / (scenario.engine.page_rows * models.target->info().kv.bytes_per_row()));
  int most = 0;
  for (const Subject& s : subjects(all_registries(), 3)) {
    if (needs_of(s.registries, s.configs.drafter).learns) continue;
    int recorded[2] = {};
    std::vector<Tokens> texts[2];
    scenario.kept = std::make_shared<Kept>();  // heads and parts of the target, as the engines of a sweep share them
    for (int i : {0, 1})
      texts[i] = run_scenario({s, scenario, *backend, models, requests}, [&](Engine&, const StepReport& r, auto) {
                   recorded[i] += r.recorded;
                 }).outputs;
    most = std::max(most, recorded[0]);
    EXPECT_EQ(recorded[1], 0) << s.text();
    EXPECT_EQ(texts[0], texts[1]) << s.text();
  }
  EXPECT_GT(most, 0);
}

TEST(DeviceLaws, a_step_waits_once_and_a_drafter_that_says_so_at_most_once_a_level) {
  const auto backend = invariant();
  const Models models = demo_models(*backend, "bf16");
  const auto requests = random_requests(3, models.target->info().vocab, 60, 40, 7);
  for (const Sampling& sampling : {Sampling{.temperature = 1}, talkative(1)})
    for (const Subject& s : subjects(all_registries(), 6)) {
      Scenario scenario = kScenario;
      scenario.sampling = sampling;
      int steps = 0, most = 0;
      run_scenario({s, scenario, *backend, models, requests},
                   [&](Engine&, const StepReport& r, auto) { ++steps, most = std::max(most, r.waits); });
      EXPECT_GT(steps, 0);
      if (needs_of(s.registries, s.configs.drafter).waits)
        EXPECT_LE(most, 1 + 1 + 6) << s.text();
      else
        EXPECT_EQ(most, 1) << s.text();
    }
}

TEST(DeviceLaws, preemption_changes_no_text) {
  const auto backend = invariant();
  const Models models = demo_models(*backend, "bf16");
  const auto requests = random_requests(8, models.target->info().vocab, 100, 60, 8);
  const auto subject = subjects(all_registries(), 4).back();
  Scenario roomy = kScenario, tight = kScenario;
  roomy.sampling.temperature = tight.sampling.temperature = 0;
  roomy.engine.batch = tight.engine.batch = 8;
  tight.engine.pages = 30;
  const RunOutcome scarce = run_scenario({subject, tight, *backend, models, requests});
  EXPECT_GT(scarce.preempted, 0);
  EXPECT_EQ(scarce.outputs, run_scenario({subject, roomy, *backend, models, requests}).outputs);
}

// Where greedy outputs of fast numerics differ from the host's, and by how much the host prefers its own token.
struct Partings {
  Backend& host;
  std::shared_ptr<Model> model;
  int texts = 0, parted = 0;
  float widest = 0, bound = 0;  // margins: the widest one, and the narrowest of their bounds

  // A margin that bf16 explains. On the way to a logit each layer rounds some five times to bf16 (normed rows, q and k,
  // what is attended, gate and up, their product), and the last norm once: each time by 2^-9 of the value at most,
  // uniform, so by 2^-9 / sqrt(3) in the root mean square. The errors add like independent ones, and a logit is a sum
  // of as large parts of either sign: its error's deviation is sqrt(5 layers + 1) 2^-9 / sqrt(3) of the root mean
  // square of the row's logits. Two tokens differ by sqrt(2) of it; 6 deviations are beyond what some hundred cases
  // show.
  static float explained(const Tensor& logits, int layers) {
    double squares = 0;
    for (const float x : logits.values<float>()) squares += double(x) * x;
    return float(6 * std::sqrt(2.0 * (5 * layers + 1) / 3) / 512 * std::sqrt(squares / double(logits.elements())));
  }

  void compare(const TestRequest& request, const Tokens& fast, const Tokens& plain, const std::string& where) {
    ++texts;
    const auto [mine, its] = std::ranges::mismatch(fast, plain);
    if (mine == fast.end() && its == plain.end()) return;
    ASSERT_TRUE(mine != fast.end() && its != plain.end()) << where << ": an output ends early";
    Tokens prefix = request.prompt;
    prefix.insert(prefix.end(), fast.begin(), mine);
    const Tensor logits = Alone(host, model, 16, int(prefix.size()) / 16 + 1).after(1, prefix).logits;
    const float margin = logits.data<float>()[*its] - logits.data<float>()[*mine],
                most = explained(logits, int(model->info().kv.layers.size()));
    EXPECT_GE(margin, 0) << where;
    EXPECT_LT(margin, most) << where << ": token " << mine - fast.begin() << " is " << *mine << " instead of " << *its;
    bound = parted++ == 0 ? most : std::min(bound, most), widest = std::max(widest, margin);
  }
};

TEST(DeviceLaws, greedy_texts_of_fast_numerics_part_from_the_hosts_only_where_two_tokens_are_as_good) {
  const auto backend = make_gpu({}), host = make_cpu_backend();
  const Models models = demo_models(*backend, "bf16"), at_home = demo_models(*host, "bf16");
  const auto requests = random_requests(24, models.target->info().vocab, 90, 40, 5);
  Scenario scenario = kScenario;
  scenario.sampling.temperature = 0, scenario.engine.batch = 8, scenario.engine.pages = 1024;
  const auto all = subjects(all_registries(), 4);
  const auto texts = run_scenario({plain(all.front()), scenario, *host, at_home, requests}).outputs;
  Partings partings{*host, at_home.target};
  for (const Subject& s : all) {
    const auto fast = run_scenario({s, scenario, *backend, models, requests}).outputs;
    for (std::size_t i = 0; i < requests.size(); ++i)
      partings.compare(requests[i], fast[i], texts[i], s.text() + ", text " + std::to_string(i));
  }
  std::printf("%d of %d greedy texts part, at margins of at most %.4f; bf16 explains %.4f\n", partings.parted,
              partings.texts, double(partings.widest), double(partings.bound));
  EXPECT_LT(partings.parted, partings.texts / 2);
}

}  // namespace
}  // namespace foretoken::test
