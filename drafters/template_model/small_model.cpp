// A drafter to copy that has a model and draws: a chain from a smaller model, each token drawn from the model's
// distribution after the token before it. That distribution is q: it goes to the verifier with the token. Leviathan et
// al. 2023 (arXiv 2211.17192), Chen et al. 2023 (2302.01318).
#include <algorithm>

#include <foretoken/plugin.h>

using namespace foretoken;

class SmallModel : public Drafter {
 public:
  SmallModel(Host& host, const nlohmann::json& options)
      : backend_(host.backend()),
        model_(host, host.load(ModelChoice::read(options.at("model")))),
        temperature_(read_draft_temperature(options, "small_model")) {}

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    const auto levels = [this](const DraftRequest& r) { return model_.budget(r).chain(); };
    // The first forward reads what the model has not seen of each sequence, up to its last token, the root. A drafter
    // may have been skipped for some steps, and where rows or pages are short it is not active in this one.
    auto [segments, active] = model_.begin(requests, trees, levels);
    for (int level = 1; !segments.empty(); ++level) {
      const Output logits = model_.run(segments);
      if (!active.empty()) add_level(requests, trees, active, logits, level);
      std::erase_if(active, [&](int i) { return level >= levels(requests[i]); });
      segments.clear();
      for (const int i : active) segments.push_back({requests[i].sequence, 0, &trees[i], level});  // the new node
    }
    return trees;
  }
  void forget(const Sequence& sequence) override { model_.forget(sequence); }

 private:
  // Draws one token below the deepest node of each active tree. The names of the draws come from the request, and the
  // device writes the tokens to their trees: the host does not wait for them.
  void add_level(std::span<const DraftRequest> requests, std::vector<DraftTree>& trees, std::span<const int> active,
                 const Output& logits, int level) {
    std::vector<DistributionAfter> rows;
    std::vector<TokenDraw> draws;
    for (const int i : active) {
      rows.push_back({requests[i].sequence, &trees[i], level - 1, draft_warp(*requests[i].sequence, temperature_)});
      draws.push_back(requests[i].draw(level, level));  // node `level` is at depth `level`
      draws.back().to = trees[i].tokens.row<Token>(level);
    }
    const Distributions q = model_.distributions(logits, rows);
    backend_.draw(q, draws, {});
    for (int k = 0; k < int(active.size()); ++k) {
      DraftTree& tree = trees[active[k]];
      tree.grow(level - 1, Drawn::chain);
      tree.q.distributions.push_back(q.slice(k, 1));  // of the children of node `level` - 1
    }
  }

  Backend& backend_;
  RoundModel model_;  // its cache lies in the engine's pages
  std::optional<float> temperature_;
};

Entry<Drafter> small_model() {
  return {"a chain drawn from a smaller model", "arXiv 2211.17192, 2302.01318",
          with_model({draft_temperature()}),  // "model", its types and shape, and "temperature"
          [](const nlohmann::json& o, Host& host) { return std::make_unique<SmallModel>(host, o); },
          [](const nlohmann::json&, const ModelInfo&) { return Needs{.proposes = {Drawn::chain}}; }};
}

extern "C" const char* foretoken_abi() { return kAbi; }
extern "C" void foretoken_plugin(Registries& registries) { registries.drafters.add("small_model", small_model()); }
