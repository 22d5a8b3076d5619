// A smaller model drafts a tree of a fixed shape. Where the draft's temperature is 0, or always with `draws` =
// "certain", the children of a node are the most probable tokens of the raw distribution, as Medusa (Cai et al. 2024,
// arXiv 2401.10774) and EAGLE (Li et al. 2024, arXiv 2401.15077) take them; else they are drawn from q, independently
// (Miao et al. 2023, SpecInfer, arXiv 2305.09781) or without repeats (Chen et al. 2024, Sequoia, arXiv 2402.12374).
// Nothing is read back: ranked tokens stay on the device as drawn ones do.
#include <algorithm>
#include <map>
#include <ranges>

#include "drafters/confidence.h"
#include "drafters/drafters.h"
#include "drafters/growth.h"
#include "drafters/tree_shape.h"
#include "kernels/staging.h"

namespace foretoken {
namespace {

struct TreeOptions {
  TreeShape shape;
  bool cut;     // the policy's largest budget may be smaller than the shape
  Drawn drawn;  // of nodes that are drawn; certain: none is
  std::optional<float> temperature;

  // Whether the children in this sequence's trees are ranked, not drawn.
  bool ranks(const Sequence& s) const { return drawn == Drawn::certain || warp(s).temperature == 0; }
  Warp warp(const Sequence& s) const { return draft_warp(s, temperature); }
  std::vector<Drawn> proposes() const {
    if (drawn == Drawn::certain || temperature == 0.0f) return {Drawn::certain};
    if (temperature) return {drawn};
    return {Drawn::certain, drawn};
  }
};

// One forward's rows, and the children to be found below them.
struct Level {
  std::vector<DistributionAfter> rows;  // ranked ones first
  std::vector<float> least;             // of each row: Budget::confidence
  struct Fed {                          // the fed nodes of one tree and depth
    int request;
    std::size_t depth;
    int row, step;  // node number k of these has the distribution of row + k * step
  };
  std::vector<Fed> fed;
  int ranked = 0, ranks = 0;  // ranked rows, and the most children of one of them
  std::vector<TokenDraw> draws;
  struct Child {
    std::int64_t element;  // of all trees' tokens
    int row, rank;         // its token is of this rank in a ranked row; row -1: it is drawn
    const Token* drawn;
    std::int64_t leaf;  // element of `leaves_` of a node whose place is known at the end alone; else -1
  };
  std::vector<Child> children;
  struct Parent {  // of drawn children
    DraftTree* tree;
    int node, row;
  };
  std::vector<Parent> parents;
};

class DraftsTree : public Drafter {
 public:
  DraftsTree(Host& host, std::unique_ptr<LevelModel> model, TreeOptions options)
      : backend_(host.backend()),
        model_(std::move(model)),
        options_(std::move(options)),
        confidence_(backend_),
        staging_(backend_) {}

  void forget(const Sequence& sequence) override { model_->forget(sequence); }

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    begin_shapes(requests);
    auto [segments, active] = model_->begin(requests, trees, [this](const auto& r) { return cut(r).fed.back(); });
    ranked_first(requests, active, segments);
    if (!active.empty()) begin_tokens(trees);
    const std::vector<int> drafted = active;
    if (model_->marginals()) draft_at_once(requests, trees, active, segments), segments.clear();
    for (std::size_t depth = 0; !segments.empty(); ++depth) {
      const Output out = model_->run(segments);
      segments.clear();
      if (active.empty()) break;
      Level level;
      for (const int i : active) add_rows(requests[std::size_t(i)], i, trees[std::size_t(i)], depth, level);
      find_tokens(requests, trees, level, model_->distributions(out, level.rows));
      std::erase_if(active, [&](int i) { return cut(requests[std::size_t(i)]).fed.size() <= depth + 1; });
      for (const int i : active) {
        const DraftRequest& r = requests[std::size_t(i)];
        const int begin = trees[std::size_t(i)].nodes;
        grow(r, cut(r).fed[depth + 1], trees[std::size_t(i)]);
        segments.push_back({r.sequence, 0, &trees[std::size_t(i)], begin});
      }
    }
    for (const int i : drafted) {
      const DraftRequest& r = requests[std::size_t(i)];
      grow(r, int(cut(r).nodes.size()), trees[std::size_t(i)]);
    }
    place_leaves(requests, trees, drafted);
    return trees;
  }

 private:
  static auto fed_at(const TreeShape::Cut& c, std::size_t depth) {
    return std::views::iota(depth == 0 ? 0 : c.fed[depth - 1], c.fed[depth]);
  }

  // A tree that may end early has a shape of its own in each round.
  void begin_shapes(std::span<const DraftRequest> requests) {
    own_.clear(), leaves_.clear(), ranked_.clear();
    for (const DraftRequest& r : requests)
      if (r.budget.confidence > 0) own_.emplace(r.sequence->id, cut(r));
  }

  const TreeShape::Cut& cut(const DraftRequest& r) {
    if (const auto own = own_.find(r.sequence->id); own != own_.end()) return own->second;
    const Budget budget = model_->budget(r);
    const auto [at, fresh] = cuts_.try_emplace({budget.nodes, budget.depth});
    if (fresh) at->second = options_.shape.cut(budget);
    return at->second;
  }

  // Ranked rows are then one slice of the distributions.
  void ranked_first(std::span<const DraftRequest> requests, std::vector<int>& active,
                    std::vector<Segment>& segments) const {
    const auto with_tree = std::span(segments).first(active.size());
    std::ranges::stable_partition(with_tree, [this](const Segment& s) { return options_.ranks(*s.sequence); });
    std::ranges::stable_partition(active, [&](int i) { return options_.ranks(*requests[std::size_t(i)].sequence); });
  }

  // All trees' tokens are one allocation (DraftTree::rooted). Tokens are drawn into another one, where siblings lie
  // side by side, and picked from there.
  void begin_tokens(std::span<const DraftTree> trees) {
    std::int64_t all = 0;
    for (const DraftTree& t : trees) all += t.tokens.dim(0);
    const Tensor& first = trees.front().tokens;
    tokens_ = Tensor(first.owner(), first.raw(), {all}, DType::i32, first.device());
    drawn_ = backend_.allocate({all}, DType::i32);
    if (!own_.empty()) leaves_.assign(std::size_t(all), nullptr);
  }

  // One row of distributions for each level serves all nodes of the level.
  void draft_at_once(std::span<const DraftRequest> requests, std::span<DraftTree> trees, std::span<const int> active,
                     std::span<const Segment> segments) {
    if (active.empty()) return;
    std::size_t levels = 0;
    for (const int i : active) levels = std::max(levels, cut(requests[std::size_t(i)]).fed.size());
    Level level;
    for (const int i : active) {
      const DraftRequest& r = requests[std::size_t(i)];
      for (std::size_t depth = 0; depth < levels; ++depth) {
        const int row = add_row(r, trees[std::size_t(i)], 0, level);
        if (depth < cut(r).fed.size()) level.fed.push_back({i, depth, row, 0});
      }
    }
    find_tokens(requests, trees, level, model_->distributions(model_->run_levels(segments, int(levels)), level.rows));
  }

  // Adds the nodes of one tree that the last forward was fed.
  void add_rows(const DraftRequest& r, int request, DraftTree& tree, std::size_t depth, Level& level) {
    level.fed.push_back({request, depth, int(level.rows.size()), 1});
    for (const int node : fed_at(cut(r), depth)) add_row(r, tree, node, level);
  }

  // The row of the distribution after a node.
  int add_row(const DraftRequest& r, DraftTree& tree, int node, Level& level) const {
    const bool ranks = options_.ranks(*r.sequence);
    level.rows.push_back({r.sequence, &tree, node, ranks ? Warp{1} : options_.warp(*r.sequence)});
    level.least.push_back(r.budget.confidence);
    if (ranks) level.ranked = int(level.rows.size()), level.ranks = std::max(level.ranks, 1);
    return int(level.rows.size()) - 1;
  }

  // Nothing hangs below nodes where the draft is unsure.
  void end_unsure(std::span<const DraftRequest> requests, const Level& level, const Distributions& distributions) {
    if (own_.empty()) return;
    const std::vector<bool> sure = confidence_.sure(distributions, level.rows, level.least);
    std::map<SequenceId, std::vector<int>> ends;
    for (const Level::Fed& f : level.fed) {
      const DraftRequest& r = requests[std::size_t(f.request)];
      int row = f.row;
      for (const int node : fed_at(cut(r), f.depth)) {
        if (!sure[std::size_t(row)]) ends[r.sequence->id].push_back(node);
        row += f.step;
      }
    }
    for (const auto& [id, nodes] : ends) own_.at(id).end_at(nodes);
  }

  void add_children(const DraftRequest& r, DraftTree& tree, int node, std::size_t depth, int row, Level& level) {
    const TreeShape::Cut& c = cut(r);
    const std::int64_t begin = tree.tokens.data<Token>() - tokens_.data<Token>();
    const bool ranks = options_.ranks(*r.sequence);
    const std::vector<int>& children = c.children[std::size_t(node)];
    if (ranks) level.ranks = std::max(level.ranks, int(children.size()));
    for (int rank = 0; rank < int(children.size()); ++rank) {
      const int child = children[std::size_t(rank)], number = c.nodes[std::size_t(child)].number;
      const bool moves = !model_->marginals() && child >= c.fed.back() && own_.contains(r.sequence->id);
      level.children.push_back(
          {begin + child, ranks ? row : -1, rank, drawn_.row<Token>(begin + number), moves ? begin + number : -1});
      if (!ranks) add_draw(r.draw(number, int(depth) + 1, rank), row, begin + number, level);
    }
    if (!ranks && !children.empty()) level.parents.push_back({&tree, node, row});
  }

  // Siblings without repeats are one draw. So are all siblings of a race, since races of one position are alike: they
  // are the first of that race, whatever their kind.
  void add_draw(TokenDraw draw, int row, std::int64_t element, Level& level) const {
    const bool together = options_.drawn == Drawn::without_replacement || draw.race;
    if (together && draw.name.index > 0) {
      ++level.draws.back().siblings;
      return;
    }
    draw.row = row, draw.to = drawn_.row<Token>(element);
    level.draws.push_back(draw);
  }

  void find_tokens(std::span<const DraftRequest> requests, std::span<DraftTree> trees, Level& level,
                   const Distributions& distributions) {
    end_unsure(requests, level, distributions);
    for (const Level::Fed& f : level.fed) {
      const DraftRequest& r = requests[std::size_t(f.request)];
      if (f.depth >= cut(r).fed.size()) continue;
      int row = f.row;
      for (const int node : fed_at(cut(r), f.depth)) {
        add_children(r, trees[std::size_t(f.request)], node, f.depth, row, level);
        row += f.step;
      }
    }
    if (!level.children.empty()) place(level, distributions);
  }

  void place(const Level& level, const Distributions& distributions) {
    Tensor ranked;
    if (level.ranked > 0) {
      const Shape shape{level.ranked, level.ranks};
      ranked = backend_.allocate(shape, DType::i32);
      backend_.rank(distributions.slice(0, level.ranked), level.ranks, ranked, backend_.allocate(shape, DType::f32));
    }
    if (!level.draws.empty()) backend_.draw(distributions, level.draws, {});
    const Staging::Array at = begin_places();
    for (const Level::Child& c : level.children) {
      const Token* const from = c.row < 0 ? c.drawn : ranked.row<Token>(c.row) + c.rank;
      (c.leaf < 0 ? *at.host.row<const Token*>(c.element) : leaves_[std::size_t(c.leaf)]) = from;
    }
    staging_.push();
    backend_.pick(tokens_, at.device, tokens_, distributions.vocab());
    if (!leaves_.empty()) ranked_.push_back(ranked);
    for (const Level::Parent& p : level.parents) {
      std::vector<Distributions>& q = p.tree->q.distributions;
      q.resize(std::size_t(p.node) + 1);
      q.back() = distributions.slice(p.row, 1);
    }
  }

  // Where the tokens of all trees come from: nowhere yet, so that all keep what they have.
  Staging::Array begin_places() {
    staging_.begin(tokens_.dim(0) * 8 + Staging::kAlignment);
    const Staging::Array at = staging_.array(tokens_.shape(), DType::u64);
    std::ranges::fill(at.host.values<std::uint64_t>(), 0);
    return at;
  }

  // Leaves come behind all nodes that are fed, and how many these are is known at the end where trees may end early.
  void place_leaves(std::span<const DraftRequest> requests, std::span<const DraftTree> trees,
                    std::span<const int> drafted) {
    if (leaves_.empty() || model_->marginals()) return;
    const Staging::Array at = begin_places();
    for (const int i : drafted) {
      const auto own = own_.find(requests[std::size_t(i)].sequence->id);
      if (own == own_.end()) continue;
      const TreeShape::Cut& c = own->second;
      const std::int64_t begin = trees[std::size_t(i)].tokens.data<Token>() - tokens_.data<Token>();
      for (int n = c.fed.back(); n < int(c.nodes.size()); ++n)
        *at.host.row<const Token*>(begin + n) = leaves_[std::size_t(begin + c.nodes[std::size_t(n)].number)];
    }
    staging_.push();
    backend_.pick(tokens_, at.device, tokens_, model_->info().vocab);
    ranked_.clear();
  }

  // Grows the tree to `nodes` nodes of its shape.
  void grow(const DraftRequest& r, int nodes, DraftTree& tree) {
    const Drawn how = options_.ranks(*r.sequence) ? Drawn::certain : options_.drawn;
    const TreeShape::Cut& c = cut(r);
    while (tree.nodes < nodes) tree.grow(c.nodes[std::size_t(tree.nodes)].parent, how);
  }

  Backend& backend_;
  std::unique_ptr<LevelModel> model_;
  TreeOptions options_;
  std::map<std::pair<int, int>, TreeShape::Cut> cuts_;  // by a budget's nodes and depth
  std::map<SequenceId, TreeShape::Cut> own_;  // of sequences whose trees may end early in this call of draft()
  Tensor tokens_, drawn_;                     // i32 [nodes of all trees] of this call
  std::vector<const Token*> leaves_;          // by the number of a leaf: where its token is, till it has a place
  std::vector<Tensor> ranked_;                // what these lie in
  Confidence confidence_;
  Staging staging_;
};

TreeOptions read_options(const nlohmann::json& o, const std::string& drafter, bool marginals) {
  TreeOptions read{TreeShape::read(o.at("shape")), o.at("cut"), Drawn::certain, read_draft_temperature(o, drafter)};
  const std::string draws = o.at("draws").get<std::string>();
  const std::vector<Drawn> known{Drawn::certain, Drawn::independent, Drawn::without_replacement};
  const auto named = std::ranges::find(known, draws, [](Drawn d) { return std::string(name_of(d)); });
  if (named == known.end())
    unknown_name("way to draw siblings", draws, {"certain", "independent", "without_replacement"});
  read.drawn = *named != Drawn::certain && read.shape.chain() ? Drawn::chain : *named;
  if (marginals && (read.drawn == Drawn::chain || read.drawn == Drawn::independent)) read.drawn = Drawn::marginals;
  return read;
}

void expect_within_context(const TreeShape& shape, const ModelInfo& model, const std::string& drafter) {
  if (shape.whole().depth >= model.positions)
    throw Error("the shape of the drafter '" + drafter + "' has " + std::to_string(shape.whole().depth) +
                " levels below the root, which the context of " + model.name + ", " + std::to_string(model.positions) +
                " tokens, can never hold; choose a shape of fewer levels");
}

void expect_levels(const TreeOptions& options, const LevelModel& model, const std::string& drafter) {
  if (!options.cut && options.shape.whole().depth > model.levels())
    throw Error("the shape of the drafter '" + drafter + "' has " + std::to_string(options.shape.whole().depth) +
                " levels below the root, but its head drafts " + std::to_string(model.levels()) +
                "; choose a shape of fewer levels, or set \"cut\" to true");
}

}  // namespace

std::vector<Option> tree_options() {
  return {{"shape", "list or name", nlohmann::json{4, 2, 2, 1},
           "children per depth, as in [4, 2, 1], or one path of ranks for each node, as in "
           "[[0], [1], [0, 0]], or the name of a published tree, as \"mc_sim_7b_63\"; where a round's budget is "
           "smaller, it is cut"},
          {"cut", "boolean", false,
           "whether the policy's largest budget may be smaller than the shape; false: that is an error"},
          {"draws", "string", "independent",
           "how siblings are drawn at temperature > 0: independent, without_replacement, or certain (the "
           "most probable); at 0 they are certain"},
          draft_temperature()};
}

Growth tree_growth(const nlohmann::json& o, const std::string& drafter, const ModelInfo& target, bool marginals) {
  const TreeOptions options = read_options(o, drafter, marginals);
  if (target.positions > 0) expect_within_context(options.shape, target, drafter);
  return {{.proposes = options.proposes(),
           .confidence = true,
           .below_drafts = true,
           .whole = options.cut ? Budget{} : options.shape.whole()},
          [options, drafter](Host& host, std::unique_ptr<LevelModel> model) {
            expect_within_context(options.shape, model->info(), drafter);
            expect_levels(options, *model, drafter);
            return std::make_unique<DraftsTree>(host, std::move(model), options);
          }};
}

Entry<Drafter> draft_tree() {
  return {"a tree of a fixed shape from a smaller model",
          "arXiv 2305.09781, 2402.12374, 2401.10774",
          with_model(tree_options()),
          [](const nlohmann::json& o, Host& host) {
            return tree_growth(o, "draft_tree", {})
                .make(host, RoundModel(host, host.load(ModelChoice::read(o.at("model")))));
          },
          [](const nlohmann::json& o, const ModelInfo& target) { return tree_growth(o, "draft_tree", target).needs; },
          {{{"shape", {2, 2}}},
           {{"shape", {2, 1, 1}}, {"draws", "without_replacement"}},
           {{"shape", nlohmann::json::parse("[[0], [1], [0, 0], [1, 0], [1, 1], [1, 0, 0], [1, 0, 1]]")}},
           {{"shape", {3, 1}}, {"draws", "certain"}, {"cut", true}},
           {{"shape", {1, 1, 1}}, {"temperature", 0.5}}}};
}

}  // namespace foretoken
