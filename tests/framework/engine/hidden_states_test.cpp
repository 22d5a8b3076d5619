// Hidden states of the target that the engine keeps for a drafter: at every draft they are those of a forward that
// reads the sequence anew, whatever the target's cache went through.
#include "tests/framework/engine/engine_scenario.h"
#include "tests/support/states.h"
#include "tests/support/tiny_models.h"

namespace foretoken::test {
namespace {

constexpr Tap kLayers = 2;  // of the tiny models

struct HiddenStatesOfATarget : EngineScenario {
  std::vector<Tap> taps{0, 1, kLayers, kNormed};
  long compared = 0, longest = 0;

  // The states of all positions but the last of a sequence, [positions, taps * width], as a forward of its own has
  // them.
  std::vector<std::vector<float>> anew(const Sequence& s) {
    PagePool pool(*backend, with_taps(models.target->info(), taps).page_bytes(64), 2);
    CachedModel model(*backend, models.target, pool, false, taps);
    Sequence alone = s;
    (void)model.unseen(alone);
    if (!model.reserve(alone, s.length() - 1)) throw Error("too few pages");
    model.run(std::array{Segment{&alone, s.length() - 1}});
    alone.tokens.push_back(0);
    (void)model.unseen(alone);
    return states(model.hidden(alone), s.length() - 1);
  }
  std::vector<std::vector<float>> states(const HiddenStates& hidden, int rows) {
    EXPECT_GE(hidden.rows(), rows);
    std::vector<std::vector<float>> all;
    for (int p = 0; p < rows; ++p) {
      all.emplace_back();
      for (const Tap t : taps)
        for (const int half : {0, 1}) {
          const Tensor at = Tensor::host({1}, DType::u64);
          *at.data<std::uint64_t>() = hidden.address(p, t, half);
          const Tensor to = backend->allocate({1, hidden.half()}, hidden.dtype());
          backend->recall(at, to, hidden.dtype());
          all.back().insert(all.back().end(), to.data<float>(), to.data<float>() + hidden.half());
        }
    }
    return all;
  }

  class Reading : public Drafter {
   public:
    Reading(HiddenStatesOfATarget& test, std::unique_ptr<Drafter> inner) : test_(test), inner_(std::move(inner)) {}
    std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
      for (const DraftRequest& r : requests) {
        if (!r.budget.drafts()) continue;
        const int rows = r.hidden.rows();
        EXPECT_EQ(test_.states(r.hidden, rows), prefix(test_.anew(*r.sequence), rows)) << r.sequence->length();
        test_.compared += rows, test_.longest = std::max<long>(test_.longest, rows);
      }
      return inner_->draft(requests);
    }
    void observe(std::span<const Outcome> outcomes) override { inner_->observe(outcomes); }
    void observe_step(const StepReport& report) override { inner_->observe_step(report); }
    void forget(const Sequence& sequence) override { inner_->forget(sequence); }

   private:
    static std::vector<std::vector<float>> prefix(std::vector<std::vector<float>> all, int rows) {
      all.resize(std::size_t(rows));
      return all;
    }
    HiddenStatesOfATarget& test_;
    std::unique_ptr<Drafter> inner_;
  };

  void SetUp() override {
    models.target = tiny_model(*backend, "llama2");
    const Entry<Drafter> inner = registries.drafters.entries().at("ngram");
    Entry<Drafter> entry = inner;
    entry.make = [this, make = inner.make](const nlohmann::json& o, Host& h) -> std::unique_ptr<Drafter> {
      return std::make_unique<Reading>(*this, make(o, h));
    };
    entry.traits = [this, traits = inner.traits](const nlohmann::json& o, const ModelInfo& m) {
      Needs needs = traits(o, m);
      needs.hidden = taps;
      return needs;
    };
    registries.drafters.add("reading", entry);
    configs.drafter = {{"name", "reading"}};
    configs.verifier = {{"name", "target_match"}};
    options.pages = 128;
  }
  void serve(std::vector<Request> requests) {
    const auto e = engine();
    for (Request& r : requests) e->submit(std::move(r));
    while (!e->idle())
      for (const Sequence& s : e->step().finished) EXPECT_EQ(s.finish, Finish::length) << s.failure;
    EXPECT_GT(compared, 100);
  }
};

TEST_F(HiddenStatesOfATarget, are_those_of_a_forward_of_its_own) {
  serve({request({1, 2, 3, 1, 2, 3, 1, 2}, 24, 0), request({7, 7, 7}, 20, 0), request({5, 6}, 30)});
}

TEST_F(HiddenStatesOfATarget, when_prompts_are_read_in_chunks_and_prefixes_are_shared) {
  options.step_rows = 8, options.batch = 2;
  const Tokens prompt{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
  serve({request(prompt, 12, 0), request(prompt, 12), request(prompt, 12)});
  EXPECT_GT(longest, 20);
}

TEST_F(HiddenStatesOfATarget, when_sequences_are_preempted) {
  options.pages = 24;
  serve({request({1, 2, 1, 2, 1, 2}, 30, 0), request({4, 5, 4, 5, 4}, 30, 0), request({6, 7, 6, 7}, 30, 0)});
}

TEST_F(HiddenStatesOfATarget, a_point_that_the_target_lacks_is_named) {
  taps = {kLayers + 1};
  EXPECT_TRUE(says(sentence([&] { engine(); }), "after layer 3", "has 2 layers"));
  models = conformance::table_models({.vocab = 5, .positions = 64, .width = 0});
  taps = {1};
  EXPECT_TRUE(says(sentence([&] { engine(); }), "keeps no hidden states"));
}

}  // namespace
}  // namespace foretoken::test
