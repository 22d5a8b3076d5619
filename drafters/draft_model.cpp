// A smaller model drafts a chain. Each token is drawn from the draft model's distribution q, which is adjusted and
// warped like the target's, and q is reported with it. Leviathan et al. 2023 (arXiv 2211.17192), Chen et al. 2023
// (2302.01318).
#include <algorithm>
#include <cmath>

#include "drafters/drafters.h"
#include "framework/decode/node_distributions.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

class DraftModel : public Drafter {
 public:
  DraftModel(Host& host, std::shared_ptr<Model> model, std::optional<float> temperature)
      : backend_(host.backend()),
        model_(host.cache(std::move(model))),
        distributions_(backend_),
        temperature_(temperature) {}

  void forget(const Sequence& sequence) override { model_->forget(sequence); }

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    std::vector<int> active;  // requests whose chain is not complete
    std::vector<Segment> segments = catch_up(requests, trees, active);
    for (int depth = 1; !segments.empty(); ++depth) {
      const Output out = model_->run(segments);
      segments.clear();
      if (active.empty()) break;
      extend(requests, trees, active, out, depth);
      std::erase_if(active, [&](int i) { return depth >= budget(requests[std::size_t(i)]); });
      for (const int i : active)
        segments.push_back({requests[std::size_t(i)].sequence, 0, &trees[std::size_t(i)], depth});
    }
    return trees;
  }

 private:
  // The draft model's context may be shorter than the target's, and its deepest node must be within it.
  int budget(const DraftRequest& r) const {
    return std::min(r.budget.chain(), model_->info().positions - r.sequence->length() + 1);
  }

  // The first forward: tokens that the draft's cache lacks, up to the root where rows and pages suffice.
  std::vector<Segment> catch_up(std::span<const DraftRequest> requests, std::span<const DraftTree> trees,
                                std::vector<int>& active) {
    std::vector<Segment> with_root, chains;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const DraftRequest& r = requests[i];
      if (r.rows == 0 || r.sequence->length() > model_->info().positions) continue;
      const int unseen = int(model_->unseen(*r.sequence).size());
      const bool root = budget(r) > 0 && unseen <= r.rows;
      const int chain = std::min(unseen - 1, r.rows);
      if ((!root && chain == 0) || !model_->reserve(*r.sequence, chain + (root ? budget(r) : 0))) continue;
      if (root) active.push_back(int(i));
      (root ? with_root : chains).push_back({r.sequence, chain, root ? &trees[i] : nullptr, 0});
    }
    with_root.insert(with_root.end(), chains.begin(), chains.end());
    return with_root;
  }

  // Draws the next token of every active chain from the draft's distribution at its deepest node.
  void extend(std::span<const DraftRequest> requests, std::span<DraftTree> trees, std::span<const int> active,
              const Output& out, int depth) {
    std::vector<DistributionAfter> rows;
    std::vector<TokenDraw> draws;
    for (const int i : active) {
      const DraftRequest& r = requests[std::size_t(i)];
      Warp warp = r.sequence->sampling.warp();
      if (temperature_) warp.temperature = *temperature_;
      rows.push_back({r.sequence, &trees[std::size_t(i)], depth - 1, warp});
      draws.push_back(r.draw(depth, depth));
      draws.back().to = trees[std::size_t(i)].tokens.row<Token>(depth);
    }
    const Distributions distributions = distributions_.of(out.logits, rows);
    backend_.draw(distributions, draws, {});
    for (std::size_t k = 0; k < active.size(); ++k) {
      DraftTree& tree = trees[std::size_t(active[k])];
      tree.grow(depth - 1, Drawn::chain);
      tree.q.distributions.push_back(distributions.slice(int(k), 1));
    }
  }

  Backend& backend_;
  std::shared_ptr<CachedModel> model_;
  NodeDistributions distributions_;
  std::optional<float> temperature_;
};

}  // namespace

Entry<Drafter> draft_model() {
  return {
      "a chain drawn from a smaller model of the same vocabulary",
      "arXiv 2211.17192, 2302.01318",
      {{"model", "model", nullptr,
        "Hugging Face directory or GGUF file of the draft model, or {\"random\": SHAPE, \"seed\": 1}"},
       {"inflate", "shape", nullptr, "shape that it is embedded in, computing the same at its cost; null: as it is",
        true, -1e300, 1e300, "model"},
       {"dtype", "dtype", "auto", "type of its weights: auto (as stored), f32, bf16, or a format as of /target/dtype",
        false, -1e300, 1e300, "model"},
       {"temperature", "number", nullptr, "of the draft's distributions; null: the sequence's own", true, 0, 100}},
      [](const nlohmann::json& o, Host& host) {
        const nlohmann::json& t = o.at("temperature");
        if (!t.is_null() && !is_temperature(t.get<double>()))
          throw Error("'temperature' of the drafter 'draft_model' is too small to divide by; use 0 for a greedy draft");
        return std::make_unique<DraftModel>(host, host.load(ModelChoice::read(o.at("model"))),
                                            t.is_null() ? std::nullopt : std::optional<float>(t.get<float>()));
      },
      [](const nlohmann::json&, const ModelInfo&) { return Needs{.proposes = {Drawn::chain}}; }};
}

}  // namespace foretoken
