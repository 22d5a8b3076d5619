// Lookahead decoding: the target itself guesses several tokens ahead in a window that it improves in every round, and
// n-grams that it said there are verified. Fu et al. 2024 (arXiv 2402.02057).
//
// The window has `window` columns and `ngram` - 1 levels: the token at level j of column i is a guess of the token i +
// j places behind the last one, and what the target says after level j was fed is level j + 1. A token attends to the
// lower levels of its column, and the lowest one to the lowest ones of the columns before. That is a tree: level 0 is a
// chain below the root, which is its column 0, and the higher levels of column i are a chain below its node at level 0.
// So every token has the paper's position and attends to what it attends to there. All these nodes are aside.
//
// After a round the lowest level leaves the window, and the target's tokens after the highest one become the new
// highest: the window moves by one place, however many tokens were accepted, as the authors' program does. It begins as
// level 0 alone, of tokens of the prompt and `ngram` - 2 columns wider, and loses a column in each round until all
// levels are there. A column whose nodes the budget had no place for keeps its guesses. When all levels are there, the
// tokens of a column and the new one above them are an n-gram, which goes to the request's pool.
//
// For 64 requests with the default options draft() takes 0.04 to 0.06 ms of one core of an AMD EPYC, and observe(),
// which fills the pools, 0.1 to 0.17 ms.
#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>

#include "drafters/drafters.h"
#include "kernels/philox.h"

namespace foretoken {
namespace {

using nlohmann::json;
using Tokens = std::vector<Token>;

struct LookaheadOptions {
  int window, ngram, guesses;
};

// The n-grams of one request by their first token, without it: at most `most` of each first token, the newest ones, and
// of kMostTokens first tokens, those that came last.
class NgramPool {
 public:
  NgramPool(int most, int rest) : most_(std::size_t(most)), rest_(std::size_t(rest)) {}

  void add(Token first, std::span<const Token> rest) {
    Block& block = block_of(first);
    Token* const begin = tokens_.data() + block.at;
    std::size_t older = 0;  // n-grams that become older by one place
    while (older < block.count && !std::equal(rest.begin(), rest.end(), begin + older * rest_)) ++older;
    if (older == block.count && block.count < most_) ++block.count;
    older = std::min(older, block.count - 1);
    std::move_backward(begin, begin + older * rest_, begin + (older + 1) * rest_);
    std::ranges::copy(rest, begin);
  }
  // One after another, the newest first.
  std::span<const Token> of(Token first) const {
    const auto it = blocks_.find(first);
    if (it == blocks_.end()) return {};
    return {tokens_.data() + it->second.at, it->second.count * rest_};
  }

 private:
  static constexpr std::size_t kMostTokens = 4096;
  struct Block {
    std::size_t at = 0, count = 0;
  };

  // That of a token that is new is taken from the oldest one, where there are too many.
  Block& block_of(Token first) {
    const auto [it, fresh] = blocks_.try_emplace(first);
    if (!fresh) return it->second;
    if (order_.size() < kMostTokens) {
      it->second.at = tokens_.size();
      tokens_.resize(tokens_.size() + most_ * rest_);
      order_.push_back(first);
      return it->second;
    }
    const auto oldest = blocks_.find(std::exchange(order_[oldest_], first));
    it->second.at = oldest->second.at;
    blocks_.erase(oldest);
    oldest_ = (oldest_ + 1) % kMostTokens;
    return it->second;
  }

  std::size_t most_, rest_;
  std::unordered_map<Token, Block> blocks_;
  std::vector<Token> tokens_;  // of all blocks
  std::vector<Token> order_;   // first tokens, a ring from oldest_ on
  std::size_t oldest_ = 0;
};

// One request.
class Lookahead {
 public:
  Lookahead(const Sequence& s, const LookaheadOptions& o) : options_(o), pool_(o.guesses, o.ngram - 1) {
    Tokens level;
    for (std::uint32_t c = 0; c < std::uint32_t(o.window + o.ngram - 2); ++c) {
      const std::uint32_t at = philox4x32_10(c, std::uint32_t(s.prompt_length), 0, 0, 0, 0).word[0];
      level.push_back(s.tokens[at % std::uint32_t(s.prompt_length)]);
    }
    levels_.push_back(std::move(level));
  }

  void draft(DraftTree& tree, const Budget& budget) {
    root_ = *tree.known.row<Token>(0);
    const int below = budget.nodes - 1;
    guess(tree, std::min(below, std::max(below - window_nodes(columns()), below / 2)), budget.depth);
    open_window(tree, budget);
  }

  // `ranks` i32 [nodes, 1]: what the target says after each node of the tree.
  void observe(const DraftTree& tree, const Tensor& ranks) {
    if (tree.nodes != nodes_ || ends_.empty()) return;
    Tokens fresh;
    const Tokens& highest = levels_.back();
    for (std::size_t c = 0; c < highest.size(); ++c) {
      const Token best = c < ends_.size() ? *ranks.row<Token>(ends_[c]) : -1;
      if (best >= 0 && filled()) pool(c, best);
      // The older guess of the same place, where there is no newer one.
      fresh.push_back(best >= 0 ? best : highest[std::min(c + 1, highest.size() - 1)]);
    }
    const bool full = filled();
    levels_.push_back(std::move(fresh));
    if (full)
      levels_.pop_front();
    else
      for (Tokens& level : levels_) level.erase(level.begin());
    ends_.clear();
  }

 private:
  bool filled() const { return int(levels_.size()) == options_.ngram - 1; }
  int columns() const { return int(levels_.back().size()); }
  // Below the root: that many columns.
  int window_nodes(int columns) const { return columns * int(levels_.size()) - 1; }

  // Adds n-grams that begin with the root's token, in at most `nodes` nodes. They share the nodes of equal beginnings.
  void guess(DraftTree& tree, int nodes, int depth) {
    const std::span<const Token> known = pool_.of(root_);
    const std::size_t rest = std::size_t(options_.ngram - 1);
    const int last = tree.nodes + nodes;
    held_.assign(known.size(), 0);  // the node of each token, 0 where it has none
    for (std::size_t at = 0; at < known.size(); at += rest) {
      std::size_t same = 0;
      for (std::size_t earlier = 0; earlier < at; earlier += rest) {
        std::size_t k = 0;
        while (k < rest && known[earlier + k] == known[at + k] && held_[earlier + k] > 0) ++k;
        if (k > same)
          std::copy_n(held_.begin() + std::ptrdiff_t(earlier), same = k, held_.begin() + std::ptrdiff_t(at));
      }
      for (std::size_t k = same; k < rest && int(k) < depth && tree.nodes < last; ++k)
        held_[at + k] = tree.guess(k == 0 ? 0 : held_[at + k - 1], known[at + k]);
    }
  }

  // Adds as many columns as fit.
  void open_window(DraftTree& tree, const Budget& budget) {
    const int height = int(levels_.size());
    int fit = std::min(columns(), budget.depth + 2 - height);  // column i ends i + height - 1 levels below the root
    while (fit > 0 && tree.nodes + window_nodes(fit) > budget.nodes) --fit;
    ends_.clear();
    for (int c = 0, lowest = 0; c < fit; ++c) {
      if (c > 0) lowest = tree.guess(lowest, levels_[0][std::size_t(c)], Drawn::aside);
      int node = lowest;
      for (std::size_t j = 1; j < levels_.size(); ++j)
        node = tree.guess(node, levels_[j][std::size_t(c)], Drawn::aside);
      ends_.push_back(node);
    }
    nodes_ = tree.nodes;
  }

  void pool(std::size_t column, Token best) {
    rest_.clear();
    for (std::size_t j = 1; j < levels_.size(); ++j) rest_.push_back(levels_[j][column]);
    rest_.push_back(best);
    pool_.add(column == 0 ? root_ : levels_[0][column], rest_);
  }

  LookaheadOptions options_;
  NgramPool pool_;
  std::deque<Tokens> levels_;  // from the lowest; [0][0] is not used, it is the root
  // Of the last tree:
  Token root_ = 0;
  std::vector<int> ends_;  // the highest node of each column that is there
  int nodes_ = 0;
  std::vector<int> held_;  // scratch memory of guess() and pool()
  Tokens rest_;
};

class LookaheadDrafter : public Drafter {
 public:
  LookaheadDrafter(Backend& backend, const LookaheadOptions& options) : backend_(backend), options_(options) {}

  std::vector<DraftTree> draft(std::span<const DraftRequest> requests) override {
    std::vector<DraftTree> trees = rooted(backend_, requests);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      const DraftRequest& r = requests[i];
      if (!r.budget.drafts()) continue;
      all_.try_emplace(r.sequence->id, *r.sequence, options_).first->second.draft(trees[i], r.budget);
    }
    return trees;
  }
  void observe(std::span<const Outcome> outcomes) override {
    for (const Outcome& o : outcomes)
      if (const auto it = all_.find(o.sequence->id); it != all_.end()) it->second.observe(*o.tree, o.ranks);
  }
  void forget(const Sequence& sequence) override {
    if (!sequence.running()) all_.erase(sequence.id);
  }

 private:
  Backend& backend_;
  LookaheadOptions options_;
  std::unordered_map<SequenceId, Lookahead> all_;
};

LookaheadOptions lookahead_options(const json& o) { return {o.at("window"), o.at("ngram"), o.at("guesses")}; }

// The budget of the window with all levels, and of as many guesses as there may be.
Budget whole_lookahead(const LookaheadOptions& o) {
  return {(o.window + o.guesses) * (o.ngram - 1), o.window + o.ngram - 3, 0};
}

}  // namespace

Entry<Drafter> lookahead() {
  return {
      "n-grams that the target says in a window of guesses beside its own rows",
      "arXiv 2402.02057",
      {{"window", "integer", 15, "columns of the window", false, 2, 60},
       {"ngram", "integer", 5, "tokens of an n-gram; the window has one level less", false, 2, 16},
       {"guesses", "integer", 15, "n-grams of one first token that are kept, and verified in a round", false, 1, 60},
       {"cut", "boolean", false, "the policy's budget may hold less than the window and the guesses"}},
      [](const json& o, Host& host) {
        return std::make_unique<LookaheadDrafter>(host.backend(), lookahead_options(o));
      },
      [](const json& o, const ModelInfo&) {
        Needs needs{.proposes = {Drawn::certain}, .learns = true, .ranks = 1};
        if (!o.at("cut").get<bool>()) needs.whole = whole_lookahead(lookahead_options(o));
        return needs;
      },
      {{{"window", 2}, {"ngram", 3}, {"guesses", 2}, {"cut", true}},
       {{"window", 3}, {"ngram", 2}, {"guesses", 1}, {"cut", true}}}};
}

}  // namespace foretoken
