// A smaller model drafts a chain. Each token is drawn from the draft model's distribution q, which is adjusted and
// warped like the target's, and q is reported with it. Leviathan et al. 2023 (arXiv 2211.17192), Chen et al. 2023
// (2302.01318).
#include "drafters/confidence.h"
#include "drafters/drafters.h"
#include "drafters/growth.h"

namespace foretoken {
namespace {

class DraftModel : public Drafter {
 public:
  DraftModel(Host& host, std::unique_ptr<LevelModel> model, std::optional<float> temperature)
      : backend_(host.backend()), model_(std::move(model)), confidence_(backend_), temperature_(temperature) {}

  void forget(const Sequence& sequence) override { model_->forget(sequence); }

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    const auto length = [this](const DraftRequest& r) { return model_->budget(r).chain(); };
    auto [segments, active] = model_->begin(requests, trees, length);  // active: requests whose chain is not complete
    for (int depth = 1; !segments.empty(); ++depth) {
      const Output out = model_->run(segments);
      segments.clear();
      if (active.empty()) break;
      extend(requests, trees, active, out, depth);
      std::erase_if(active, [&](int i) { return depth >= length(requests[std::size_t(i)]); });
      for (const int i : active)
        segments.push_back({requests[std::size_t(i)].sequence, 0, &trees[std::size_t(i)], depth});
    }
    return trees;
  }

 private:
  // Draws the next token of every active chain from the draft's distribution at its deepest node. A chain where that
  // distribution is unsure (Budget::confidence) is active no more.
  void extend(std::span<const DraftRequest> requests, std::span<DraftTree> trees, std::vector<int>& active,
              const Output& out, int depth) {
    std::vector<DistributionAfter> rows;
    std::vector<float> least;
    for (const int i : active) {
      const DraftRequest& r = requests[std::size_t(i)];
      rows.push_back({r.sequence, &trees[std::size_t(i)], depth - 1, draft_warp(*r.sequence, temperature_)});
      least.push_back(r.budget.confidence);
    }
    const Distributions distributions = model_->distributions(out, rows);
    const std::vector<bool> sure = confidence_.sure(distributions, rows, least);
    std::vector<int> longer;
    std::vector<TokenDraw> draws;
    for (std::size_t k = 0; k < active.size(); ++k) {
      if (!sure[k]) continue;
      longer.push_back(active[k]);
      draws.push_back(requests[std::size_t(active[k])].draw(depth, depth));
      draws.back().row = std::int32_t(k), draws.back().to = trees[std::size_t(active[k])].tokens.row<Token>(depth);
    }
    active = std::move(longer);
    if (draws.empty()) return;
    backend_.draw(distributions, draws, {});
    for (std::size_t k = 0; k < active.size(); ++k) {
      DraftTree& tree = trees[std::size_t(active[k])];
      tree.grow(depth - 1, Drawn::chain);
      tree.q.distributions.push_back(distributions.slice(draws[k].row, 1));
    }
  }

  Backend& backend_;
  std::unique_ptr<LevelModel> model_;
  Confidence confidence_;
  std::optional<float> temperature_;
};

}  // namespace

std::vector<Option> chain_options() { return {draft_temperature()}; }

Growth chain_growth(const nlohmann::json& o, const std::string& drafter) {
  const std::optional<float> temperature = read_draft_temperature(o, drafter);
  return {{.proposes = {Drawn::chain}, .confidence = true, .below_drafts = true},
          [temperature](Host& host, std::unique_ptr<LevelModel> model) {
            return std::make_unique<DraftModel>(host, std::move(model), temperature);
          }};
}

Entry<Drafter> draft_model() {
  return {
      "a chain drawn from a smaller model",
      "arXiv 2211.17192, 2302.01318",
      with_model(chain_options()),
      [](const nlohmann::json& o, Host& host) {
        return chain_growth(o, "draft_model").make(host, RoundModel(host, host.load(ModelChoice::read(o.at("model")))));
      },
      [](const nlohmann::json& o, const ModelInfo&) { return chain_growth(o, "draft_model").needs; },
      {nlohmann::json::object(), {{"temperature", 0.5}}}};
}

}  // namespace foretoken
