// A smaller model drafts a chain in one forward: it reads the tokens that it lacks and then mask tokens, and the
// distribution at each mask is that of the next token but so many (An et al. 2025, PARD, arXiv 2504.18583). No draft
// knows the tokens of the ones before it, so each is drawn from a marginal. Rows of masks are never kept.
#include "drafters/confidence.h"
#include "drafters/drafters.h"
#include "framework/components/round_model.h"
#include "kernels/error.h"

namespace foretoken {
namespace {

class Pard : public Drafter {
 public:
  Pard(Host& host, RoundModel model, Token mask, std::optional<float> temperature)
      : backend_(host.backend()),
        model_(std::move(model)),
        confidence_(backend_),
        mask_(mask),
        temperature_(temperature) {}

  void forget(const Sequence& sequence) override { model_.forget(sequence); }

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests), fed = rooted(backend_, requests);
    for (std::size_t i = 0; i < fed.size(); ++i)
      for (int node = 1; node < drafts(requests[i]); ++node) fed[i].guess(node - 1, mask_);
    auto [segments, active] =
        model_.begin(requests, fed, [this](const DraftRequest& r) { return std::max(1, drafts(r)); });
    if (segments.empty()) return trees;
    for (Segment& s : segments) s.approximate = 1;
    const Output out = model_.run(segments);
    if (active.empty()) return trees;
    std::vector<DistributionAfter> rows;
    std::vector<float> least;
    for (const int i : active)
      for (int node = 0; node < fed[std::size_t(i)].nodes; ++node) {
        const DraftRequest& r = requests[std::size_t(i)];
        rows.push_back({r.sequence, &fed[std::size_t(i)], node, draft_warp(*r.sequence, temperature_)});
        least.push_back(r.budget.confidence);
      }
    const Distributions distributions = model_.distributions(out, rows);
    const std::vector<bool> sure = confidence_.sure(distributions, rows, least);
    std::vector<TokenDraw> draws;
    std::size_t row = 0;
    for (const int i : active) {
      DraftTree& tree = trees[std::size_t(i)];
      const std::size_t end = row + std::size_t(fed[std::size_t(i)].nodes);
      for (; row < end && sure[row]; ++row) {
        const int node = tree.grow(tree.nodes - 1, Drawn::marginals);
        tree.q.distributions.push_back(distributions.slice(int(row), 1));
        draws.push_back(requests[std::size_t(i)].draw(node, node));
        draws.back().row = std::int32_t(row), draws.back().to = tree.tokens.row<Token>(node);
      }
      row = end;
    }
    if (!draws.empty()) backend_.draw(distributions, draws, {});
    return trees;
  }

 private:
  int drafts(const DraftRequest& r) const { return model_.budget(r).chain(); }

  Backend& backend_;
  RoundModel model_;
  Confidence confidence_;
  Token mask_;
  std::optional<float> temperature_;
};

// `own`: how many tokens the model has.
Token mask_of(const nlohmann::json& o, const ModelInfo& model, int own) {
  const Token mask = o.at("mask").is_null() ? model.mask : o.at("mask").get<Token>();
  if (mask < 0)
    throw Error(
        "the draft model " + model.name +
        " names no \"pard_token\" in its config.json; choose one that was trained to draft in parallel, or give "
        "the drafter 'pard' its 'mask'");
  if (mask >= own)
    throw Error("'mask' of the drafter 'pard' is " + std::to_string(mask) + ", but " + model.name + " has " +
                std::to_string(own) + " tokens");
  return mask;
}

}  // namespace

Entry<Drafter> pard() {
  return {
      "a chain from one forward of a smaller model that reads mask tokens",
      "arXiv 2504.18583",
      with_model({{"mask", "integer", nullptr, "the mask token; null: \"pard_token\" of the model's config.json", true,
                   0, 1 << 24},
                  draft_temperature()}),
      [](const nlohmann::json& o, Host& host) {
        std::shared_ptr<Model> model = host.load(ModelChoice::read(o.at("model")));
        const VocabularyMap* map = model->vocabulary_map();
        Token mask = mask_of(o, model->info(), map ? int(map->target_ids().size()) : model->info().vocab);
        if (map) mask = map->id_of(mask);
        return std::make_unique<Pard>(host, RoundModel(host, std::move(model)), mask,
                                      read_draft_temperature(o, "pard"));
      },
      [](const nlohmann::json&, const ModelInfo&) { return Needs{.proposes = {Drawn::marginals}, .confidence = true}; },
      {{{"mask", 0}}, {{"mask", 1}, {"temperature", 0.5}}}};
}

}  // namespace foretoken
