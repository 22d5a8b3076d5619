// A tree whose shape depends on the draft's probabilities: EAGLE-2 (Li et al. 2024, arXiv 2406.16858) for any smaller
// model. Level by level the most probable nodes are expanded, by the product of the probabilities on the path from the
// root; then the most probable nodes of all are kept. No node is more probable than its parent, so what is kept is a
// tree. Probabilities are those of the raw distribution (temperature 1, nothing cut), and all nodes are certain
// guesses: whoever chose among drawn nodes by their own q would change the output's distribution. The host waits for
// the device once a level, since the shape of a level depends on the probabilities of the one before.
#include <algorithm>

#include "drafters/drafters.h"
#include "drafters/growth.h"
#include "kernels/staging.h"

namespace foretoken {
namespace {

// A node that the draft's ranks named.
struct Candidate {
  int parent;  // index of a candidate; -1: the root
  int depth;
  Token token;
  double joint;  // the product of the probabilities from the root down to it
  int fed = 0;   // its node of the fed tree; 0: it is not fed
};

// One sequence's round.
struct GrowingTree {
  int request;
  Budget budget;
  std::vector<Candidate> candidates{};  // level by level; those that were among the best when they were found
  std::vector<int> best{};   // of them, as many as the budget has nodes below the root; the best first, among
                             // equals the shallower ones, so parents are among them
  std::vector<int> fed{-1};  // of the nodes of the fed tree: their candidates; -1: the root
  int begin = 0;             // fed nodes before this one have been expanded

  // False where it is not among the best: then no sibling that is less probable is.
  bool add(const Candidate& c) {
    const auto joint = [this](int i) { return candidates[std::size_t(i)].joint; };
    const bool full = int(best.size()) == budget.nodes - 1;
    if (full && c.joint <= joint(best.back())) return false;
    best.insert(std::ranges::upper_bound(best, c.joint, std::greater(), joint), int(candidates.size()));
    candidates.push_back(c);
    if (full) best.pop_back();
    return true;
  }
};

class DraftsDynamic : public Drafter {
 public:
  DraftsDynamic(Host& host, std::unique_ptr<LevelModel> model, int width, int expand)
      : backend_(host.backend()), model_(std::move(model)), width_(width), expand_(expand), staging_(backend_) {}

  void forget(const Sequence& sequence) override { model_->forget(sequence); }

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests), fed = fed_trees(requests);
    const auto [first, active] = model_->begin(requests, fed, [this](const auto& r) { return most_fed(r); });
    std::vector<GrowingTree> growing, grown;
    for (const int i : active) growing.push_back({i, model_->budget(requests[std::size_t(i)])});
    std::vector<Segment> segments = first;
    for (int depth = 1; !segments.empty(); ++depth) {
      const Output out = model_->run(segments);
      segments.clear();
      if (growing.empty()) break;
      add_candidates(requests, fed, out, depth, growing);
      std::vector<GrowingTree> more;
      for (GrowingTree& g : growing) {
        DraftTree& tree = fed[std::size_t(g.request)];
        const bool expanded = depth < g.budget.depth && expand(depth, g, tree);
        if (expanded) segments.push_back({requests[std::size_t(g.request)].sequence, 0, &tree, g.begin});
        (expanded ? more : grown).push_back(std::move(g));
      }
      growing = std::move(more);
    }
    for (const GrowingTree& g : grown) keep_best(g, trees[std::size_t(g.request)]);
    return trees;
  }

 private:
  // The root, and the nodes that are expanded on each level but the last.
  int most_fed(const DraftRequest& r) const {
    const Budget b = model_->budget(r);
    return b.drafts() ? 1 + (b.depth - 1) * std::min(expand_, b.nodes - 1) : 1;
  }

  // The trees that the model is fed: of the nodes that are expanded, kept or not.
  std::vector<DraftTree> fed_trees(std::span<const DraftRequest> requests) const {
    std::vector<DraftTree::Root> roots;
    for (const DraftRequest& r : requests) roots.push_back({r.sequence->last(), most_fed(r) - 1});
    return DraftTree::rooted(backend_, roots);
  }

  // The `width` most probable children of each node that the last forward was fed. Waits for the device.
  void add_candidates(std::span<const DraftRequest> requests, std::span<const DraftTree> fed, const Output& out,
                      int depth, std::span<GrowingTree> growing) {
    std::vector<DistributionAfter> rows;
    for (const GrowingTree& g : growing)
      for (int node = g.begin; node < int(g.fed.size()); ++node)
        rows.push_back({requests[std::size_t(g.request)].sequence, &fed[std::size_t(g.request)], node, Warp{1}});
    const auto [tokens, q] = ranks(model_->distributions(out, rows));
    std::int64_t row = 0;
    for (GrowingTree& g : growing)
      for (; g.begin < int(g.fed.size()); ++g.begin, ++row) {
        const int parent = g.fed[std::size_t(g.begin)];
        if (q.row<float>(row)[0] < g.budget.confidence) continue;
        const double above = parent < 0 ? 1 : g.candidates[std::size_t(parent)].joint;
        for (int k = 0; k < width_ && tokens.row<Token>(row)[k] >= 0; ++k)
          if (!g.add({parent, depth, tokens.row<Token>(row)[k], above * double(q.row<float>(row)[k])})) break;
      }
  }

  // Tokens i32 and probabilities f32, [n, width] on the host, valid until the next call. One copy moves both.
  std::pair<Tensor, Tensor> ranks(const Distributions& raw) {
    const Shape both{2, std::int64_t(raw.count()) * width_};
    const auto parts = [&](const Tensor& of) {
      const auto part = [&](std::int64_t i, DType dtype) {
        return Tensor(of.owner(), of.row<std::int32_t>(i), {raw.count(), width_}, dtype, of.device());
      };
      return std::pair(part(0, DType::i32), part(1, DType::f32));
    };
    const Tensor ranked = backend_.allocate(both, DType::i32);
    const auto [tokens, q] = parts(ranked);
    backend_.rank(raw, width_, tokens, q);
    staging_.begin(ranked.bytes() + Staging::kAlignment);
    const Tensor read = staging_.array(both, DType::i32).host;
    backend_.fetch(ranked, read);
    backend_.synchronize();
    return parts(read);
  }

  // Adds the best nodes of this level to the fed tree; false where there are none. What is not among the best of all is
  // left out: neither it nor a node below it could be kept in the end.
  bool expand(int depth, GrowingTree& g, DraftTree& tree) const {
    std::vector<int> level;
    for (const int c : g.best)
      if (g.candidates[std::size_t(c)].depth == depth && int(level.size()) < expand_) level.push_back(c);
    for (const int c : level) {
      Candidate& candidate = g.candidates[std::size_t(c)];
      const int parent = candidate.parent < 0 ? 0 : g.candidates[std::size_t(candidate.parent)].fed;
      g.fed.push_back(c);
      candidate.fed = tree.guess(parent, candidate.token);
    }
    return !level.empty();
  }

  static void keep_best(const GrowingTree& g, DraftTree& tree) {
    std::vector<int> kept = g.best, node(g.candidates.size());
    std::ranges::sort(kept);
    for (const int c : kept) {
      const Candidate& candidate = g.candidates[std::size_t(c)];
      node[std::size_t(c)] =
          tree.guess(candidate.parent < 0 ? 0 : node[std::size_t(candidate.parent)], candidate.token);
    }
  }

  Backend& backend_;
  std::unique_ptr<LevelModel> model_;
  int width_, expand_;
  Staging staging_;
};

}  // namespace

std::vector<Option> dynamic_options() {
  return {{"width", "integer", 10, "children of an expanded node, 1 to 255", false, 1, kMaxNodes - 1},
          {"expand", "integer", 10, "the most nodes expanded on each level, 1 to 255", false, 1, kMaxNodes - 1}};
}

Growth dynamic_growth(const nlohmann::json& o) {
  return {{.proposes = {Drawn::certain}, .confidence = true, .waits = true, .below_drafts = true},
          [width = o.at("width").get<int>(), expand = o.at("expand").get<int>()](Host& host,
                                                                                 std::unique_ptr<LevelModel> model) {
            return std::make_unique<DraftsDynamic>(host, std::move(model), width, expand);
          }};
}

Entry<Drafter> draft_dynamic() {
  return {"a tree of the most probable paths of a smaller model",
          "arXiv 2406.16858",
          with_model(dynamic_options()),
          [](const nlohmann::json& o, Host& host) {
            return dynamic_growth(o).make(host, RoundModel(host, host.load(ModelChoice::read(o.at("model")))));
          },
          [](const nlohmann::json& o, const ModelInfo&) { return dynamic_growth(o).needs; },
          {{{"width", 2}, {"expand", 2}}, {{"width", 3}, {"expand", 1}}}};
}

}  // namespace foretoken
