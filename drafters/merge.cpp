// One tree from several drafters': the union under one budget, in which equal tokens below equal parents share a node.
// Guesses merge without loss, whatever a verifier does with them. At most one of the drafters may draw, since all draws
// below a node must come from one q; it is asked last, so that no guess depends on a draw, for the nodes that the
// guesses left. A draw shares no node: its token is not known yet, and whether a guess stands beside it must not depend
// on it. A single draw with guesses beside it is one of `independent` siblings (SpecInfer, arXiv 2305.09781), so a
// verifier must take these. Tokens of guesses that a device chose are read back, once a round. On the host a
// guess costs a comparison with each node of the union: 0.1 ms of one core for 64 sequences, three drafters, 64 nodes.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "drafters/drafters.h"
#include "drafters/parts.h"
#include "kernels/error.h"
#include "kernels/staging.h"

namespace foretoken {
namespace {

bool may_draw(const Needs& needs) {
  return std::ranges::any_of(needs.proposes, [](Drawn d) { return d != Drawn::certain; });
}

class Merge : public Combination {
 public:
  Merge(Host& host, const nlohmann::json& drafters, std::optional<int> guesses)
      : Combination(host, drafters),
        backend_(host.backend()),
        guesses_(guesses),
        tokens_(backend_),
        addresses_(backend_) {
    order_.resize(std::size_t(parts_.count()));
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::stable_partition(order_, [this](int k) { return !may_draw(parts_.needs(k)); });
  }

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    std::vector<std::vector<DraftTree>> drafted;  // they hold the tokens that are copied at the end
    copies_.clear();
    for (const int k : order_) {
      const bool last = may_draw(parts_.needs(k));
      std::vector<DraftRequest> asked(requests.begin(), requests.end());
      std::vector<int> most;
      for (std::size_t i = 0; i < asked.size(); ++i) {
        Budget& b = asked[i].budget;
        if (b.drafts()) b.nodes = last ? b.nodes - trees[i].nodes + 1 : 1 + guesses(b);
        b = b.or_root();
        most.push_back(last ? requests[i].budget.or_root().nodes : b.nodes);
      }
      std::vector<DraftTree>& found = drafted.emplace_back(parts_.draft(k, asked));
      read_tokens(found);
      for (std::size_t i = 0; i < trees.size(); ++i) add(found[i], most[i], trees[i]);
    }
    copy_draws(trees);
    parts_.bare_where_pages_lacked(requests, trees);
    return trees;
  }

 private:
  // The most nodes of guesses under a budget, where another drafter draws.
  int guesses(const Budget& b) const {
    const bool alone = !may_draw(parts_.needs(order_.back()));
    return std::min(b.nodes - 1, guesses_ ? *guesses_ : alone ? b.nodes - 1 : (b.nodes - 1) / 2);
  }

  // Adds the nodes of a part's tree to the union, as far as it has less than `most` nodes.
  void add(const DraftTree& from, int most, DraftTree& to) {
    std::vector<int> at(std::size_t(from.nodes), -1);
    at[0] = 0;
    for (int n = 0; n < from.nodes; ++n) {
      if (n > 0) at[std::size_t(n)] = place(from, n, at[std::size_t(*from.parents.row<std::int32_t>(n))], most, to);
      const int node = at[std::size_t(n)];
      if (node < 0 || std::size_t(n) >= from.q.distributions.size() || !from.q.distributions[std::size_t(n)]) continue;
      if (to.q.distributions.size() <= std::size_t(node)) to.q.distributions.resize(std::size_t(node) + 1);
      to.q.distributions[std::size_t(node)] = from.q.distributions[std::size_t(n)];
    }
  }

  // The node of the union for node n of a part's tree, below `parent`; -1: it has no room, or is one aside.
  int place(const DraftTree& from, int n, int parent, int most, DraftTree& to) {
    if (parent < 0 || from.aside(n)) return -1;
    const Token token = *from.known.row<Token>(n);
    if (!from.random(n)) {
      for (int c = parent + 1; c < to.nodes; ++c)
        if (*to.parents.row<std::int32_t>(c) == parent && !to.random(c) && *to.known.row<Token>(c) == token) return c;
      return to.nodes < most ? to.guess(parent, token) : -1;
    }
    if (to.nodes >= most) return -1;
    const Drawn how = Drawn(*from.q.drawn.row<std::uint8_t>(n));
    const int node = to.grow(parent, how == Drawn::chain ? Drawn::independent : how);
    if (const Token* drawn = from.drawn_at(n))
      copies_.push_back({drawn, to.tokens.row<Token>(node)});
    else
      *to.known.row<Token>(node) = token;
    return node;
  }

  // Reads the tokens of guesses that the device chose.
  void read_tokens(std::span<DraftTree> trees) {
    std::int64_t bytes = 0;
    for (const DraftTree& t : trees)
      if (chosen_by_device(t)) bytes += t.nodes * std::int64_t(sizeof(Token)) + Staging::kAlignment;
    if (bytes == 0) return;
    tokens_.begin(bytes);
    std::vector<Tensor> read(trees.size());
    for (std::size_t i = 0; i < trees.size(); ++i) {
      if (!chosen_by_device(trees[i])) continue;
      read[i] = tokens_.array({trees[i].nodes}, DType::i32).host;
      backend_.fetch(trees[i].tokens.rows(0, trees[i].nodes), read[i]);
    }
    backend_.synchronize();
    for (std::size_t i = 0; i < trees.size(); ++i)
      for (int n = 1; read[i] && n < trees[i].nodes; ++n)
        if (!trees[i].random(n) && *trees[i].known.row<Token>(n) == DraftTree::kUnread)
          *trees[i].known.row<Token>(n) = *read[i].row<Token>(n);
  }
  static bool chosen_by_device(const DraftTree& tree) {
    for (int n = 1; n < tree.nodes; ++n)
      if (!tree.random(n) && *tree.known.row<Token>(n) == DraftTree::kUnread && tree.drawn_at(n)) return true;
    return false;
  }

  // Drawn tokens to their nodes of the union, on the device. `trees` lie in one allocation (DraftTree::rooted).
  void copy_draws(std::span<const DraftTree> trees) {
    if (copies_.empty()) return;
    const Tensor& first = trees.front().tokens;
    std::int64_t all = 0;
    for (const DraftTree& t : trees) all += t.tokens.dim(0);
    addresses_.begin(all * 12 + 2 * Staging::kAlignment);
    const auto at = addresses_.array({all}, DType::u64), known = addresses_.array({all}, DType::i32);
    std::fill_n(at.host.data<const Token*>(), all, nullptr);
    std::fill_n(known.host.data<Token>(), all, -1);  // nobody reads these
    for (const auto& [from, to] : copies_) at.host.data<const Token*>()[to - first.data<Token>()] = from;
    addresses_.push();
    backend_.pick(known.device, at.device, Tensor(first.owner(), first.raw(), {all}, DType::i32, first.device()),
                  std::numeric_limits<int>::max());
  }

  struct Copy {
    const Token* from;
    Token* to;
  };
  Backend& backend_;
  std::optional<int> guesses_;
  std::vector<int> order_;  // parts that only guess, then the one that draws
  std::vector<Copy> copies_;
  Staging tokens_, addresses_;
};

void expect_mergeable(const Needs& part, const std::string& who) {
  if (learns_from_own_trees(part))
    throw Error(who +
                ", which learns from its own trees alone and would never see one; try it in 'longest' or "
                "'first_hit'");
  if (part.whole.drafts())
    throw Error(who + " with a shape that may not be cut, but all share one budget; let it say \"cut\": true");
}

// The verifier must take siblings of a draw.
void unite_merged(Needs& own, std::span<const Needs> parts, const nlohmann::json& config) {
  if (std::ranges::count_if(parts, may_draw) > 1)
    throw Error(
        "the drafter 'merge' has several inner drafters that draw, whose tokens below one node would come from "
        "different distributions; keep one of them, or let the others guess (\"draws\": \"certain\")");
  for (std::size_t k = 0; k < parts.size(); ++k)
    expect_mergeable(parts[k],
                     "the drafter 'merge' has the inner drafter " + config.at("drafters")[k].at("name").dump());
  unite_parts(own, parts, config);
  std::ranges::replace(own.proposes, Drawn::chain, Drawn::independent);
}

}  // namespace

Entry<Drafter> merge() {
  const nlohmann::json lookup{{"name", "ngram"}, {"longest", 2}, {"shortest", 1}},
      nearer{{"name", "ngram"}, {"longest", 1}, {"shortest", 1}}, model{{"name", "draft_model"}},
      tree{{"name", "draft_tree"}, {"shape", {2, 1}}, {"draws", "certain"}, {"cut", true}};
  return {.summary = "one tree from several drafters': the union under one budget",
          .source = "",
          .options = {drafters_option("guesses in this order, then those of the one that draws, if any does"),
                      {"guesses", "integer", nullptr,
                       "the most nodes of guesses, where one drafter draws; null: half of those below the root, or all "
                       "where none draws",
                       true, 0, kMaxNodes - 1}},
          .make =
              [](const nlohmann::json& o, Host& host) {
                const nlohmann::json& guesses = o.at("guesses");
                return std::make_unique<Merge>(host, o.at("drafters"),
                                               guesses.is_null() ? std::optional<int>() : guesses.get<int>());
              },
          .traits =
              [](const nlohmann::json& o, const ModelInfo&) {
                expect_parts(o);
                return Needs{.waits = true};
              },
          .examples = {{{"drafters", {lookup, model}}},
                       {{"drafters", {nearer, lookup, tree}}, {"guesses", 3}},
                       {{"drafters", {tree, model}}, {"guesses", 1}}},
          .unite = unite_merged};
}

}  // namespace foretoken
