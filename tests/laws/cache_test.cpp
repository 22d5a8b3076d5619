// cache: pages held = ceil(length / page), keys and values equal a fresh prefill's, no page leaks. memory: after
// rejections a drafter proposes what a fresh one does.
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "experiments/conformance/components.h"
#include "experiments/conformance/laws.h"
#include "tests/laws/subjects.h"
#include "tests/support/states.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {

using namespace conformance;

namespace {

std::vector<Subject> everything(int length) {
  const Registries registries = with_scripted(all_registries());
  auto drafters = configurations(registries.drafters);
  for (const char* kinds : {"mixed", "independent"}) drafters.push_back(random_tree(5, kinds));
  return subjects(registries, length, drafters);
}

using CacheLaw = Finding (*)(const Run&);
Finding memory_law(const Run& run) { return memory(run); }

void expect(CacheLaw law, const std::vector<Subject>& all, const Scenario& scenario, HostBackend& backend,
            const Models& models, std::span<const TestRequest> requests) {
  long accepted = 0, rejected = 0;
  for (const Subject& s : all) {
    if (law == memory_law && needs_of(s.registries, s.configs.drafter).learns) continue;
    const Finding f = law({s, scenario, backend, models, requests});
    EXPECT_TRUE(f.holds) << f.what.substr(0, 1000);
    EXPECT_TRUE(f.cases > 0 || s.configs.drafter["name"] == "none") << f.what;
    accepted += f.accepted, rejected += f.rejected;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(rejected, 0);
}

const TableModel::Options kCacheTable{.vocab = 4, .order = 2, .seed = 41};

TEST(Cache, TablesHoldWhatAPrefillHolds) {
  ReferenceBackend b;
  const auto requests = random_requests(10, 4, 12, 24, 5);
  for (const float temperature : {0.0f, 1.0f})
    for (const int page_rows : {1, 3, 4})
      expect(cache, everything(5),
             {.sampling = {.temperature = temperature},
              .engine = {.batch = 4, .step_rows = 24, .page_rows = page_rows, .pages = 256, .check = true}},
             b, table_models(kCacheTable), requests);
}

TEST(Cache, SmallPoolsUnderPreemption) {
  ReferenceBackend b;
  const auto requests = random_requests(10, 4, 12, 24, 6);
  expect(cache, everything(5), {.engine = {.batch = 6, .step_rows = 24, .page_rows = 2, .pages = 24, .check = true}}, b,
         table_models(kCacheTable), requests);
}

// A drafter's own model class, around a model that the host loaded.
class Wrapped : public Model {
 public:
  explicit Wrapped(std::shared_ptr<Model> inner) : inner_(std::move(inner)), info_(inner_->info()) {
    info_.name = "wrapped " + info_.name;
  }
  const ModelInfo& info() const override { return info_; }
  Output forward(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) override {
    return inner_->forward(backend, rows, kv);
  }

 private:
  std::shared_ptr<Model> inner_;
  ModelInfo info_;
};

// Feeds its model the unseen tokens, and drafts one token.
class OfAWrappedModel : public Drafter {
 public:
  explicit OfAWrappedModel(Host& host)
      : backend_(host.backend()), model_(host.cache(std::make_shared<Wrapped>(host.load({"table:other"})))) {}
  void forget(const Sequence& sequence) override { model_->forget(sequence); }
  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Sequence& s = *requests[i].sequence;
      const int chain = std::min(int(model_->unseen(s).size()), requests[i].rows);
      const Segment segment{&s, chain, nullptr, 0};
      if (chain > 0 && model_->reserve(s, chain)) (void)model_->run({&segment, 1});
      if (requests[i].budget.drafts()) trees[i].guess(0, 1);
    }
    return trees;
  }

 private:
  Backend& backend_;
  std::shared_ptr<CachedModel> model_;
};

Registries with_wrapped() {
  Registries r = all_registries();
  r.drafters.add("wrapped", entry_that<Drafter>(states(Needs{.proposes = {Drawn::certain}}),
                                                [](const nlohmann::json&, Host& host) {
                                                  return std::make_unique<OfAWrappedModel>(host);
                                                }));
  return r;
}

TEST(Cache, OfAModelThatTheDrafterWrapped) {
  ReferenceBackend b;
  const auto requests = random_requests(10, 4, 12, 24, 5);
  const Scenario scenario{.engine = {.batch = 4, .step_rows = 24, .page_rows = 3, .pages = 256, .check = true}};
  for (const Subject& s : subjects(with_wrapped(), 1, {{{"name", "wrapped"}}})) {
    const Finding f = cache({s, scenario, b, table_models(kCacheTable), requests});
    EXPECT_TRUE(f.holds) << f.what;
    Subject without = s;
    without.configs.drafter = {{"name", "ngram"}};
    EXPECT_GT(f.cases, cache({without, scenario, b, table_models(kCacheTable), requests}).cases)
        << "its cache was compared too";
  }
}

TEST(Cache, TransformersHoldWhatAPrefillHolds) {
  ReferenceBackend reference;
  const auto cpu = cpu_backend(2);
  for (HostBackend* b : {static_cast<HostBackend*>(&reference), cpu.get()}) {
    const Models models = tiny_models(*b);
    const auto requests = random_requests(3, models.target->info().vocab, 20, 10, 7);
    expect(cache, subjects(all_registries(), 3),
           {.sampling = {.temperature = 0.4f},
            .engine = {.batch = 3, .step_rows = 32, .page_rows = 4, .pages = 256, .check = true}},
           *b, models, requests);
  }
}

// Of which int8 is so near that few drafts are rejected.
const std::set<std::string> kNearInInt8{"olmo2", "smollm3", "gpt_oss"};

TEST(Cache, MixturesOfExpertsAndOtherFamiliesHoldWhatAPrefillHolds) {
  ReferenceBackend reference;
  const auto cpu = cpu_backend(2);
  const Registries registries = all_registries();
  const auto all = subjects(registries, 3, {configurations(registries.drafters, "draft_model").front()});
  for (HostBackend* b : {static_cast<HostBackend*>(&reference), static_cast<HostBackend*>(cpu.get())})
    for (const std::string target : {"mixtral", "qwen2_moe", "qwen3_moe", "gemma2", "gemma3", "phi3", "olmo2",
                                     "smollm3", "deepseek3", "gpt_oss"}) {
      SCOPED_TRACE(b->name() + ", " + target);
      const Models models =
          tiny_models(*b, {.target = target, .other_dtype = kNearInInt8.contains(target) ? "int4" : "int8"});
      expect(cache, all,
             {.sampling = {.temperature = 0.4f},
              .engine = {.batch = 3, .step_rows = 32, .page_rows = 4, .pages = 256, .check = true}},
             *b, models, random_requests(3, models.target->info().vocab, 20, 10, 7));
    }
}

TEST(Memory, TablesAtEveryStep) {
  ReferenceBackend b;
  const auto requests = random_requests(10, 4, 12, 24, 8);
  for (const float temperature : {0.0f, 1.0f})
    expect(memory_law, everything(4),
           {.sampling = {.temperature = temperature},
            .engine = {.batch = 4, .step_rows = 256, .page_rows = 3, .pages = 512, .check = true}},
           b, table_models(kCacheTable), requests);
}

TEST(Memory, TransformersAtEveryStep) {
  ReferenceBackend reference;
  const auto cpu = cpu_backend(2);
  for (HostBackend* b : {static_cast<HostBackend*>(&reference), cpu.get()}) {
    const Models models = tiny_models(*b);
    const auto requests = random_requests(3, models.target->info().vocab, 20, 10, 9);
    expect(memory_law, subjects(all_registries(), 3),
           {.sampling = {.temperature = 0.4f},
            .engine = {.batch = 3, .step_rows = 256, .page_rows = 4, .pages = 256, .check = true}},
           *b, models, requests);
  }
}

}  // namespace
}  // namespace foretoken::test
