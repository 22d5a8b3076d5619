// Serves requests with and without the one that fails; a target whose logits are no numbers after one token.
#pragma once
#include <limits>

#include "tests/framework/engine/engine_scenario.h"

namespace foretoken::test {

inline constexpr Token kPoison = 4;

// The logits after the token kPoison are no numbers.
class Poisoned : public Model {
 public:
  explicit Poisoned(std::shared_ptr<Model> inner) : inner_(std::move(inner)) {}
  const ModelInfo& info() const override { return inner_->info(); }
  Output forward(Backend& b, const Rows& rows, std::span<const KvLayer> kv) override {
    Output out = inner_->forward(b, rows, kv);
    for (std::int64_t i = 0; rows.wanted && i < rows.wanted.dim(0); ++i)
      if (rows.tokens.row<Token>(*rows.wanted.row<std::int32_t>(i))[0] == kPoison)
        out.logits.row<float>(i)[1] = std::numeric_limits<float>::quiet_NaN();
    return out;
  }

 private:
  std::shared_ptr<Model> inner_;
};

struct FailureScenario : EngineScenario {
  FailureScenario() { options.pages = 512; }  // where pages are short drafts have other lengths
  // A request with draws of its own that never says kPoison.
  static Request clean(Tokens prompt, std::uint64_t stream, bool logprobs = false) {
    Request r = request(std::move(prompt), 14);
    r.stream = stream;
    r.sampling.logit_bias = {{kPoison, -100}};
    r.sampling.logprobs = logprobs;
    return r;
  }
  std::vector<Sequence> serve(const std::vector<Request>& requests) {
    const auto e = engine();
    for (const Request& r : requests) e->submit(r);
    std::vector<Sequence> done;
    for (int steps = 0; !e->idle() && steps < 400; ++steps)
      for (auto& s : e->step().finished) done.push_back(std::move(s));
    EXPECT_TRUE(e->idle());
    EXPECT_EQ(e->pool().in_use(), 0);
    std::ranges::sort(done, {}, &Sequence::id);
    return done;
  }
  // Serves all, and all but number `failing`: the same but for that one, which fails with `reason`. Returns it.
  Sequence one_fails(std::vector<Request> requests, std::size_t failing, const std::string& reason) {
    std::vector<Sequence> all = serve(requests);
    requests.erase(requests.begin() + std::ptrdiff_t(failing));
    const std::vector<Sequence> others = serve(requests);
    EXPECT_EQ(all.size(), others.size() + 1);
    Sequence failed = std::move(all.at(failing));
    all.erase(all.begin() + std::ptrdiff_t(failing));
    for (std::size_t i = 0; i < others.size(); ++i) {
      EXPECT_EQ(all[i].tokens, others[i].tokens) << i;
      EXPECT_EQ(all[i].logprobs, others[i].logprobs) << i;
      EXPECT_EQ(all[i].finish, Finish::length);
      EXPECT_EQ(all[i].failure, "");
    }
    EXPECT_EQ(failed.finish, Finish::failed);
    EXPECT_TRUE(says(failed.failure, reason)) << failed.failure;
    return failed;
  }
};

}  // namespace foretoken::test
