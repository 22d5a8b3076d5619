// The laws on the GPU, with the demo models, in invariant numerics: greedy, coupled, batch; and one wait a step.
#include <gtest/gtest.h>

#include "experiments/conformance/laws.h"
#include "experiments/conformance/options.h"
#include "framework/model/transformer.h"
#include "kernels/cuda/cuda_backend.h"

namespace foretoken::test {

using namespace conformance;

namespace {

std::unique_ptr<Backend> invariant() { return make_cuda_backend({.invariant = true}); }

std::shared_ptr<Model> demo(Backend& backend, const std::string& name, const std::string& dtype) {
  const auto folder = std::filesystem::path(FORETOKEN_SOURCE_DIR) / "experiments/models" / name;
  return std::make_shared<Transformer>(backend, ModelConfig::load(folder), Checkpoint::open(folder), name, 0, TransformerOptions{.dtype = dtype});
}

// "table:same" is the target, any other name a draft.
Cast demo_cast(Backend& backend, const std::string& dtype) {
  const auto target = demo(backend, "target", dtype), draft = demo(backend, "draft", dtype), large = demo(backend, "draft-large", dtype);
  return {target, [=](const ModelChoice& m, const std::string&) { return m.directory == "table:same" ? target : m.directory == "table:other" ? draft : large; }};
}

const Scene kScene{.engine = {.batch = 4, .step_rows = 64, .page_rows = 16, .pages = 256, .check = true}};

void expect_plain_texts(const Sampling& sampling, const std::string& dtype, const std::function<bool(const Subject&)>& asked) {
  const auto backend = invariant();
  const Cast cast = demo_cast(*backend, dtype);
  const auto asks = random_asks(6, cast.target->info().vocab, 90, 40, 5);
  Scene scene = kScene;
  scene.sampling = sampling;
  long accepted = 0, refused = 0;
  for (const Subject& s : subjects(all_registries(), 4)) {
    if (!asked(s)) continue;
    const Finding f = same_text(s, scene, *backend, cast, asks);
    EXPECT_TRUE(f.holds) << f.what;
    accepted += f.accepted, refused += f.refused;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

bool path_identical(const Subject& s) { return soundness_of(s.registries, s.chairs.verifier).promise.find("path-identical") != std::string::npos; }

TEST(DeviceLaws, greedy_text_is_plain_decodings) {
  for (const char* dtype : {"bf16", "f32"}) expect_plain_texts({.temperature = 0}, dtype, [](const Subject&) { return true; });
}

TEST(DeviceLaws, coupled_text_is_plain_decodings_at_any_temperature) {
  for (const float t : {0.4f, 1.0f}) expect_plain_texts({.temperature = t}, "bf16", path_identical);
}

TEST(DeviceLaws, text_under_penalties_is_plain_decodings) {
  expect_plain_texts(talkative(0), "bf16", [](const Subject&) { return true; });
  expect_plain_texts(talkative(1), "bf16", path_identical);
}

TEST(DeviceLaws, penalties_give_the_texts_of_the_reference) {
  const auto backend = invariant();
  ReferenceBackend reference;
  for (const int vocab : {5, 261})
    for (const Subject& s : subjects(all_registries(), 4)) {
      const Finding f = same_on_devices(s, {.sampling = talkative(0.9f)}, reference, *backend, table_cast({.vocab = vocab, .order = 1, .seed = 95}), random_asks(8, vocab, 10, 24, 12));
      EXPECT_TRUE(f.holds) << f.what;
    }
}

// Where two sets of texts part, in a sentence; empty where they do not.
std::string parting(const std::vector<Text>& texts, const std::vector<Text>& others) {
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (texts[i] != others[i])
      return "text " + std::to_string(i) + " parts at token " + std::to_string(std::ranges::mismatch(texts[i], others[i]).in1 - texts[i].begin());
  return "";
}

TEST(DeviceLaws, a_text_does_not_depend_on_its_batch_nor_on_the_chunks_of_its_prompt) {
  const auto backend = invariant();
  const Cast cast = demo_cast(*backend, "bf16");
  const auto asks = random_asks(24, cast.target->info().vocab, 200, 32, 6);
  for (const Subject& s : subjects(all_registries(), 3)) {
    Scene alone = kScene, crowd = kScene, chunks = kScene;
    alone.engine.batch = 1, alone.engine.step_rows = 512;
    crowd.engine.batch = 24, crowd.engine.step_rows = 1024, crowd.engine.pages = 1024;
    chunks.engine.batch = 5, chunks.engine.step_rows = 23;
    // At temperature 0 whatever the trees are; sampled texts also depend on where trees end, so plain decoding's are compared.
    for (const float temperature : {0.0f, 1.0f}) {
      for (Scene* scene : {&alone, &crowd, &chunks}) scene->sampling.temperature = temperature;
      const Subject& subject = temperature > 0 ? plain(s) : s;
      const auto one = play(subject, alone, *backend, cast, asks).texts;
      EXPECT_EQ(parting(one, play(subject, crowd, *backend, cast, asks).texts), "") << "in a crowd at " << temperature << ": " << subject.text();
      EXPECT_EQ(parting(one, play(subject, chunks, *backend, cast, asks).texts), "") << "in chunks at " << temperature << ": " << subject.text();
    }
  }
}

// The bits behind the texts: whatever the steps, caches hold the keys and values of a prefill at once.
TEST(DeviceLaws, caches_hold_what_a_prefill_at_once_holds) {
  const auto backend = invariant();
  const Cast cast = demo_cast(*backend, "bf16");
  const auto asks = random_asks(7, cast.target->info().vocab, 200, 10, 9);
  const int steps[] = {9, 12, 17, 23, 31, 40, 61, 100, 200};
  std::size_t turn = 0;
  for (const Subject& s : subjects(all_registries(), 3)) {
    const int rows = steps[turn++ % std::size(steps)];
    Scene scene = kScene;
    scene.engine.batch = std::min(5, rows), scene.engine.step_rows = rows;
    const Finding f = cache(s, scene, *backend, cast, asks);
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

TEST(DeviceLaws, a_step_waits_once) {
  const auto backend = invariant();
  const Cast cast = demo_cast(*backend, "bf16");
  const auto asks = random_asks(3, cast.target->info().vocab, 60, 40, 7);
  for (const Sampling& sampling : {Sampling{.temperature = 1}, talkative(1)})
    for (const Subject& s : subjects(all_registries(), 6)) {
      Scene scene = kScene;
      scene.sampling = sampling;
      int steps = 0, most = 0;
      play(s, scene, *backend, cast, asks, [&](Engine&, const StepReport& r, auto) { ++steps, most = std::max(most, r.waits); });
      EXPECT_GT(steps, 0);
      EXPECT_EQ(most, 1) << s.text();
    }
}

TEST(DeviceLaws, preemption_changes_no_text) {
  const auto backend = invariant();
  const Cast cast = demo_cast(*backend, "bf16");
  const auto asks = random_asks(8, cast.target->info().vocab, 100, 60, 8);
  const auto subject = subjects(all_registries(), 4).back();
  Scene roomy = kScene, tight = kScene;
  roomy.sampling.temperature = tight.sampling.temperature = 0;
  roomy.engine.batch = tight.engine.batch = 8;
  tight.engine.pages = 30;
  const Played scarce = play(subject, tight, *backend, cast, asks);
  EXPECT_GT(scarce.preempted, 0);
  EXPECT_EQ(scarce.texts, play(subject, roomy, *backend, cast, asks).texts);
}

}  // namespace
}  // namespace foretoken::test
