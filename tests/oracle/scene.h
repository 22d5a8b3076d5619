// Engines over models whose logits are written by hand, and whether what they served is what the oracle says.
#pragma once
#include <map>
#include <memory>

#include <gtest/gtest.h>

#include "experiments/conformance/scenario.h"
#include "framework/text/byte_alphabet.h"
#include "framework/text/tokenizer.h"
#include "framework/text/utf8.h"
#include "tests/oracle/oracle.h"

namespace foretoken::oracle {

using nlohmann::json;

// A model whose logits depend on the last token: rows[token]. Its keys are not written, since nothing reads them.
class HandModel : public Model {
 public:
  explicit HandModel(std::vector<Numbers> rows, int positions = 256) : rows_(std::move(rows)) {
    info_.name = "hand", info_.vocab = int(rows_.size()), info_.positions = positions;
    info_.kv = KvShape(1, 1, 2, DType::f32);
  }
  const ModelInfo& info() const override { return info_; }
  Output forward(Backend&, const Rows& rows, std::span<const KvLayer>) override {
    ++forwards;
    if (!rows.wanted) return {};
    const std::int64_t wanted = rows.wanted.dim(0);
    const Tensor out = Tensor::host({wanted, info_.vocab}, DType::f32);
    for (std::int64_t i = 0; i < wanted; ++i) {
      const Token last = rows.tokens.data<Token>()[rows.wanted.data<std::int32_t>()[i]];
      std::ranges::copy(rows_.at(std::size_t(std::max(last, 0))), out.row<float>(i));
    }
    return {out};
  }
  LogitsAfter logits_after() const {
    return [rows = rows_](const Tokens& context) { return rows.at(std::size_t(context.back())); };
  }

  int forwards = 0;

 private:
  std::vector<Numbers> rows_;
  ModelInfo info_;
};

// Token t is followed by next[t], then, less and less probable, by the tokens after that one.
inline std::vector<Numbers> followed_by(const Tokens& next, double step = 1) {
  std::vector<Numbers> rows;
  const int vocab = int(next.size());
  for (const Token best : next) {
    Numbers& row = rows.emplace_back(std::size_t(vocab));
    for (int k = 0; k < vocab; ++k) row[std::size_t((best + k) % vocab)] = -step * k;
  }
  return rows;
}

inline LogitsAfter logits_of(std::shared_ptr<const conformance::TableModel> model) {
  return [model](const Tokens& context) {
    const auto z = model->logits(context);
    return Numbers(z.begin(), z.end());
  };
}

// Token t is byte t.
inline std::string byte_of(Token t) { return std::string(1, char(t)); }
inline json bytes_file() {
  json vocab;
  for (int b = 0; b < 256; ++b) {
    std::string letter;
    append_utf8(letter, letter_of_byte(static_cast<unsigned char>(b)));
    vocab[letter] = unsigned(b);
  }
  return {{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"decoder", {{"type", "ByteLevel"}}}};
}
inline std::shared_ptr<const Tokenizer> bytes() { return Tokenizer::from(bytes_file(), "bytes"); }

// An engine's target, what drafters load, and its parts.
struct Scene {
  std::unique_ptr<Backend> backend = make_reference_backend();
  Registries registries = conformance::all_registries();
  std::shared_ptr<Model> target;
  Host::Load load;  // of drafters' models
  ComponentConfigs configs{{{"name", "none"}}, {{"name", "fixed"}, {"length", 3}}, {{"name", "speculative_sampling"}}};
  EngineOptions options{.batch = 4, .step_rows = 64, .page_rows = 2, .pages = 128, .check = true};

  // A target with another model, by default itself, for drafters.
  explicit Scene(std::shared_ptr<Model> model, std::shared_ptr<Model> draft = {})
      : target(model), load([draft = draft ? draft : model](const ModelChoice&) { return draft; }) {}
  std::unique_ptr<Engine> engine() const {
    return std::make_unique<Engine>(*backend, target, registries, configs, options, load);
  }
};

// Runs an engine until it is idle; an engine that does not come to an end fails the test.
using AfterStep = std::function<void(const StepReport&)>;
inline std::map<SequenceId, Sequence> serve(Engine& engine, const AfterStep& after = {}) {
  std::map<SequenceId, Sequence> done;
  for (int steps = 0; !engine.idle(); ++steps) {
    if (steps > 5000) return ADD_FAILURE() << "the engine does not come to an end", done;
    StepReport report = engine.step();
    if (after) after(report);
    for (Sequence& s : report.finished) done.insert_or_assign(s.id, std::move(s));
  }
  EXPECT_EQ(engine.pool().in_use(), 0) << "pages were not given back";
  return done;
}

inline Tokens output_of(const Sequence& s) { return {s.tokens.begin() + s.prompt_length, s.tokens.end()}; }

// Whether a sequence that was served is what its model and its options give. Of a random output: whether each token is
// one that may follow, and whether it ends where it must.
inline void expect_served(const Sequence& s, const LogitsAfter& model, const Ends& ends) {
  const Tokens prompt(s.tokens.begin(), s.tokens.begin() + s.prompt_length), output = output_of(s);
  if (s.sampling.temperature == 0) {
    const Ended want = greedy(model, prompt, s.sampling, ends);
    EXPECT_EQ(output, want.output);
    EXPECT_EQ(name_of(s.finish), want.reason);
  }
  ASSERT_FALSE(output.empty());
  EXPECT_EQ(s.logprobs.size(), s.sampling.logprobs ? output.size() : 0) << "log-probabilities";
  for (std::size_t i = 0; i < output.size(); ++i) {
    const Tokens before(output.begin(), output.begin() + std::ptrdiff_t(i)),
        up_to(output.begin(), output.begin() + std::ptrdiff_t(i) + 1);
    const double p = law(model, prompt, before, s.sampling)[std::size_t(output[i])];
    ASSERT_GT(p, 0) << "token " << i << ", which is " << output[i] << ", cannot follow";
    ASSERT_EQ(reason_at_the_end(up_to, ends), i + 1 < output.size() ? "running" : name_of(s.finish))
        << "at token " << i;
    if (i < s.logprobs.size()) {
      ASSERT_NEAR(s.logprobs[i], log_probability(model, prompt, before, output[i], s.sampling), 2e-5) << "token " << i;
    }
  }
}

}  // namespace foretoken::oracle
