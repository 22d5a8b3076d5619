// A model whose next-token distribution is known exactly: the logits are a hash of the last tokens. Its "key" is the
// token itself, and it reads its context from the cache only, through the layout, so any fault of a cache, a block
// table or an ancestor mask changes its logits. This module must not know drafters, verifiers or the engine.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "framework/decode/sequence.h"
#include "framework/model/model.h"

namespace foretoken::conformance {

// p(x) of all tokens; of logits under a warp.
std::vector<double> probabilities(const Distribution& distribution);
std::vector<double> warped(std::span<const float> logits, const Warp& warp);

class TableModel : public Model {
 public:
  struct Options {
    int vocab = 3;
    int order = 3;  // the distribution depends on the last `order` tokens; 0: on all of them
    std::uint64_t seed = 1;
    double perturb = 0;        // > 0: the model of perturb 0 with noise of this size on the logits
    bool uniform = false;      // every token equally probable after every context
    double spread = 1.2;       // of the logits: 0 is uniform
    double impossible = 0.15;  // share of tokens of probability 0, and the same share of about 1e-6; one token always
                               // keeps its probability
    int positions = 512;
    int head_size = 2;                 // floats of a key, at least 2; wider rows make a pool hold fewer
    int width = 16;                    // of its hidden states, which are hashes of all tokens before
    std::optional<Tap> features = {};  // forwards return this state, and no logits (LeftOut::head)
    bool strict = true;                // a wrong depth or token in the cache is an Error
    bool gaps = false;                 // whole pages may be missing before a row (LeftOut::pages)
  };

  explicit TableModel(const Options& options);
  const ModelInfo& info() const override { return info_; }
  const Options& options() const { return options_; }
  // Stores (token + 1, position) as key and (position, token + 1) as value of every row, then reads every wanted row's
  // context back from the cache. An absent token (-1) is stored as 0.
  Output forward(Backend& backend, const Rows& rows, std::span<const KvLayer> kv) override;
  bool logits() const override { return !options_.features; }
  bool features() const override { return options_.features.has_value(); }
  bool reads_states() const override { return false; }
  // Random ones.
  const Ends* ends(Backend& backend) override;
  // Another distribution of the same tokens, by what is left out.
  std::shared_ptr<Model> part(const std::shared_ptr<Model>& self, const LeftOut& left_out) override;

  // f32 [vocab] logits after `context`, without a cache.
  std::span<const float> logits(std::span<const Token> context) const;
  // p(x) after `context` under the warp.
  std::vector<double> distribution(std::span<const Token> context, const Warp& warp) const {
    return warped(logits(context), warp);
  }

 private:
  Tensor selected(Backend& backend, const Tensor& tokens, const KvLayer& kv, const Layout& layout) const;
  Tensor states(const Layout& layout, const KvLayer& kv, Tap tap) const;
  void add_mass(Backend& backend, const Layout& layout, const KvLayer& kv, const Tensor& mass) const;
  std::vector<Token> read_context(const Layout& layout, const KvLayer& kv, int row) const;

  Options options_;
  ModelInfo info_;
  mutable std::unordered_map<std::uint64_t, std::vector<float>> table_;
  std::unordered_map<std::uint64_t, Ends> ends_;  // by the backend's serial
};

// Names of table models, accepted where a drafter takes a model's directory: "table:other" (the target's distribution
// with noise), "table:far" (an unrelated distribution), "table:same" (the target's own), "table:uniform".
TableModel::Options named_table(const std::string& name, const TableModel::Options& target);

// The target's distribution under a request's options, computed slowly from the definitions of the options: the
// reference of the laws. It shares only the warp with the engine's computation.

// p(x) after `context`, whose first `prompt` tokens are the prompt.
std::vector<double> target_distribution(const TableModel& target, std::span<const Token> context, int prompt,
                                        const Sampling& sampling);

}  // namespace foretoken::conformance
